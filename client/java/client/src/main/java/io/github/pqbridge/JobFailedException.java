package io.github.pqbridge;

/** The job became a dead letter. */
public class JobFailedException extends PqException {
    private final transient JobResult result;

    JobFailedException(JobResult result) {
        super(text(result), 0, result.reason(), false, false);
        this.result = result;
    }

    private static String text(JobResult r) {
        int n = r.deadDeliveries();
        return "job " + r.id() + " failed after " + n + (n == 1 ? " delivery: " : " deliveries: ") + r.failure();
    }

    /**
     * Returns what became of the job.
     *
     * @return the result; null in an exception that was serialized
     */
    public JobResult result() { return result; }
}
