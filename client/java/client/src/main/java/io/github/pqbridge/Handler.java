package io.github.pqbridge;

/**
 * Does a job.
 *
 * <p>If it returns, the job is done. If it throws anything, the job comes back after the backoff of
 * the queue, or else the retry delay of the worker, and is a dead letter after the last delivery
 * that the queue allows, with the text of the exception and of its causes as the reason. {@link
 * RetryAfter}, {@link Snooze} and {@link Drop} say otherwise.
 *
 * <p>The thread is interrupted when the handler should end: see {@link Job#ending}. A job may be
 * done more than once, for instance if its acknowledgement comes after its lease was lost. Where
 * that matters, remember the ids of jobs, which stay the same.
 */
@FunctionalInterface
public interface Handler {
    /**
     * Does a job.
     *
     * @param job the job, which belongs to this call
     * @throws Exception if the job is not done
     */
    void handle(Job job) throws Exception;
}
