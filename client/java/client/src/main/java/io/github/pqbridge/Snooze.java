package io.github.pqbridge;

import java.time.Duration;

/** Thrown by a {@link Handler} to have its job come back later, without counting the delivery. */
public class Snooze extends RuntimeException {
    /** Until the job comes back. */
    private final Duration delay;

    /**
     * Returns the job to its queue.
     *
     * @param delay until the job comes back, 0 to ten years
     */
    public Snooze(Duration delay) {
        super("again in " + delay);
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
