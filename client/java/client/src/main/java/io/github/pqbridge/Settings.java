package io.github.pqbridge;

import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Settings of a queue to change: only those that are set. All setters return this. The protocol has
 * their bounds and defaults.
 */
public final class Settings {
    final Map<String, Object> members = new LinkedHashMap<>();

    private Settings() {}

    /**
     * Changes nothing yet.
     *
     * @return settings to set
     */
    public static Settings of() { return new Settings(); }

    /**
     * Sets the length of leases that do not say one.
     *
     * @param ackWait 100 ms to 12 h
     * @return this
     */
    public Settings ackWait(Duration ackWait) { return set("ack_wait", PopOptions.checkAckWait(ackWait)); }

    /**
     * Sets how long an item stays back after each delivery that failed.
     *
     * @param pauses the pauses; the last counts for all later deliveries
     * @return this
     */
    public Settings backoff(Duration... pauses) { return set("backoff", Arrays.asList(pauses)); }

    /**
     * Sets after how many deliveries an item becomes a dead letter.
     *
     * @param maxDeliver the number; 0 means never
     * @return this
     */
    public Settings maxDeliver(int maxDeliver) { return set("max_deliver", maxDeliver); }

    /**
     * Sets the queue for dead letters.
     *
     * @param queue its name
     * @return this
     */
    public Settings deadLetter(String queue) { return set("dead_letter", Wire.checkQueue(queue)); }

    /**
     * Sets after how long items expire that are pushed without a ttl.
     *
     * @param ttl the time
     * @return this
     */
    public Settings ttl(Duration ttl) { return set("ttl", ttl); }

    /**
     * Sets for how long jobs are kept that are done.
     *
     * @param keep the time
     * @return this
     */
    public Settings keep(Duration keep) { return set("keep", keep); }

    /**
     * Sets the queues that acknowledgements may push to.
     *
     * @param queues their names
     * @return this
     */
    public Settings next(String... queues) { return set("next", Arrays.stream(queues).map(Wire::checkQueue).toList()); }

    /**
     * Sets how many attempts are kept of each job.
     *
     * @param trail up to 16
     * @return this
     */
    public Settings trail(int trail) { return set("trail", trail); }

    /**
     * Sets how many items may be leased at a time.
     *
     * @param maxLeased the number; 0 means any
     * @return this
     */
    public Settings maxLeased(int maxLeased) { return set("max_leased", maxLeased); }

    /**
     * Sets how many items of each group may be leased at a time.
     *
     * @param maxLeased the number; 0 means any
     * @return this
     */
    public Settings maxLeasedPerGroup(int maxLeased) { return set("max_leased_per_group", maxLeased); }

    /**
     * Sets how many items the queue delivers in a time.
     *
     * @param rate such as "10/1s"
     * @return this
     */
    public Settings rate(String rate) { return set("rate", rate); }

    /**
     * Sets how many items of each group the queue delivers in a time.
     *
     * @param rate such as "10/1s"
     * @return this
     */
    public Settings ratePerGroup(String rate) { return set("rate_per_group", rate); }

    /**
     * Sets how many items a push may leave in the queue.
     *
     * @param maxItems the number; 0 means any
     * @return this
     */
    public Settings maxItems(long maxItems) { return set("max_items", maxItems); }

    /**
     * Sets for how long a push with the same message id is a duplicate.
     *
     * @param window the time
     * @return this
     */
    public Settings duplicateWindow(Duration window) { return set("duplicate_window", window); }

    /**
     * Resets a setting to its default.
     *
     * @param name the name of the protocol, such as "ack_wait"
     * @return this
     */
    public Settings reset(String name) {
        members.put(Wire.checkText("a setting", name), null);
        return this;
    }

    /**
     * Sets any setting of the protocol.
     *
     * @param name the name, such as "max_bytes"
     * @param value text, a number, a boolean, a Duration, an Instant, or a List or Map of these
     * @return this
     */
    public Settings set(String name, Object value) {
        members.put(Wire.checkText("a setting", name), written(name, Wire.required(name, value)));
        return this;
    }

    /** Returns a value as requests have it. */
    static Object written(String name, Object value) {
        if (value instanceof Duration d) {
            return Wire.durationText(name, d);
        }
        if (value instanceof Instant t) {
            return Wire.timeText(name, t);
        }
        if (value instanceof List<?> list) {
            return list.stream().map(v -> written(name, v)).toList();
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> all = new LinkedHashMap<>();
            map.forEach((key, v) -> all.put(String.valueOf(key), v == null ? null : written(name, v)));
            return all;
        }
        if (value instanceof Number n && !Double.isFinite(n.doubleValue())) {
            throw new BadArgumentException(name + " is " + n + ": want a number that JSON has");
        }
        if (value instanceof String || value instanceof Boolean || value instanceof Number) {
            return value;
        }
        throw new BadArgumentException(name + " is a " + (value == null ? "null" : value.getClass().getName())
                + ": want text, a number, a boolean, a Duration, an Instant, or a List or Map of these");
    }
}
