package io.github.pqbridge;

import java.time.Duration;

/** Options of pops and leases. All setters return this. */
public final class PopOptions {
    private static final Duration HOUR = Duration.ofHours(1);

    boolean max;
    Duration expires = Duration.ZERO;
    long maxBytes;
    Duration ackWait = Duration.ZERO; // 0 for what the settings say
    String holder;

    private PopOptions() {}

    /**
     * Returns the defaults: the smallest priority, without waiting.
     *
     * @return options to change
     */
    public static PopOptions of() { return new PopOptions(); }

    /**
     * Takes the largest priority first, and the newest among equals. Not in a FIFO queue.
     *
     * @return this
     */
    public PopOptions max() {
        max = true;
        return this;
    }

    /**
     * Waits for an item, or with several until all are there.
     *
     * @param expires for how long, up to an hour
     * @return this
     */
    public PopOptions expires(Duration expires) {
        this.expires = Wire.checkDuration("expires", expires, Duration.ZERO, HOUR);
        return this;
    }

    /**
     * Returns no more than that many bytes of items.
     *
     * @param maxBytes the number, 1 or more
     * @return this
     */
    public PopOptions maxBytes(long maxBytes) {
        if (maxBytes < 1) {
            throw new BadArgumentException("maxBytes " + maxBytes + ": want 1 or more");
        }
        this.maxBytes = maxBytes;
        return this;
    }

    /**
     * Sets the length of the lease. The default is what the settings of the queue say, or else 30 s.
     *
     * @param ackWait 100 ms to 12 h
     * @return this
     */
    public PopOptions ackWait(Duration ackWait) {
        this.ackWait = checkAckWait(ackWait);
        return this;
    }

    /**
     * Sets the name that others see of who has the lease. The default is this process.
     *
     * @param holder up to 128 bytes
     * @return this
     */
    public PopOptions holder(String holder) {
        this.holder = Wire.checkHolder("holder", holder);
        return this;
    }

    static Duration checkAckWait(Duration ackWait) {
        return Wire.checkDuration("ackWait", ackWait, Duration.ofMillis(100), Duration.ofHours(12));
    }
}
