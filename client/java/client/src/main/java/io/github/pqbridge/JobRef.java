package io.github.pqbridge;

/**
 * A job, and the queue that it was pushed to.
 *
 * @param queue the name of the queue
 * @param id the id of the job
 */
public record JobRef(String queue, String id) {
    static JobRef of(String text) {
        int blank = text.indexOf(' ');
        return blank < 0 ? null : new JobRef(text.substring(0, blank), text.substring(blank + 1));
    }

    /** Returns the job as the header Pq-Joiner names it. */
    @Override
    public String toString() { return queue + " " + id; }
}
