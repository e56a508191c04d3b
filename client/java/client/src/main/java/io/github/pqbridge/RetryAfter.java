package io.github.pqbridge;

import java.time.Duration;

/**
 * Thrown by a {@link Handler} to fail, and be tried again after a time of its own: neither the
 * backoff of the queue nor the retry delay of the worker counts. The delivery does.
 */
public class RetryAfter extends RuntimeException {
    /** Until the job comes back. */
    private final Duration delay;

    /**
     * Fails because of an exception.
     *
     * @param delay until the job comes back, 0 to ten years
     * @param cause why; its text is kept
     */
    public RetryAfter(Duration delay, Throwable cause) {
        super(null, cause);
        this.delay = Wire.checkDuration("delay", delay, Duration.ZERO, Wire.TEN_YEARS);
    }

    /**
     * Fails for a reason.
     *
     * @param delay until the job comes back, 0 to ten years
     * @param reason why; at most 1,024 bytes are kept
     */
    public RetryAfter(Duration delay, String reason) {
        super(reason);
        this.delay = Wire.checkDuration("delay", delay, Duration.ZERO, Wire.TEN_YEARS);
    }

    /**
     * Returns how long the job waits.
     *
     * @return the time until the job comes back
     */
    public Duration delay() {
        return delay;
    }
}
