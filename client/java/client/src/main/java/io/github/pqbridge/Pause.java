package io.github.pqbridge;

import java.time.Duration;

/** The time between attempts: 50 ms, twice as long after each, 2 s at most. */
final class Pause {
    static final Duration LONGEST = Duration.ofSeconds(2);
    private static final Duration FIRST = Duration.ofMillis(50);

    private Duration next = FIRST;

    /** Begins again, after a success. */
    void reset() { next = FIRST; }

    /** Returns the next pause in nanoseconds. */
    long nanos() {
        long nanos = next.toNanos();
        next = next.multipliedBy(2).compareTo(LONGEST) < 0 ? next.multipliedBy(2) : LONGEST;
        return nanos;
    }
}
