package io.github.pqbridge;

/**
 * A pushed item is durable.
 *
 * @param queue the name of the queue
 * @param id the id of the job, wherever its item goes
 * @param priority its priority, 0 in a FIFO queue
 * @param duplicate whether nothing was pushed, because of a message id or unique key: id and priority
 *     belong to the push that came before
 */
public record Pushed(String queue, String id, long priority, boolean duplicate) {
    /**
     * Returns the job as the joiner of other items: see {@link Push#joiner(JobRef)}.
     *
     * @return the queue and the id
     */
    public JobRef ref() { return new JobRef(queue, id); }
}
