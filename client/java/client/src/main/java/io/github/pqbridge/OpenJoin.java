package io.github.pqbridge;

/**
 * A joiner to which members may be added until it is closed: see {@link Queue#openJoin}. A member
 * without a job of its own, the guard, holds it back: {@link Joined#gone} counts it.
 */
public final class OpenJoin implements AutoCloseable {
    private final Queue queue;
    private final String id;
    private final String guard;

    OpenJoin(Queue queue, String id, String guard) {
        this.queue = queue;
        this.id = id;
        this.guard = guard;
    }

    /**
     * Returns the id of the joiner.
     *
     * @return the id
     */
    public String id() { return id; }

    /**
     * Returns the joiner as its members name it: see {@link Push#joiner(JobRef)}.
     *
     * @return the queue and the id
     */
    public JobRef ref() { return new JobRef(queue.name(), id); }

    /** Says that no more members will come. It may be called again, and too late it changes nothing. */
    @Override
    public void close() {
        try {
            queue.remove(guard);
        } catch (NotFoundException e) {
            // it was closed before, or its time is over
        }
    }
}
