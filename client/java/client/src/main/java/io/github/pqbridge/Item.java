package io.github.pqbridge;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/**
 * An item, and what the bridge says about it. What the message had no room for is "", 0 or empty.
 */
public class Item {
    private static final Set<String> ORIGINS = Set.of("Pq-Schedule", "Pq-Scheduled-At", "Pq-Source", "Pq-Parent");

    private final byte[] value;
    private final Headers all;
    private Headers own;

    Item(byte[] value, Headers all) {
        this.value = value;
        this.all = all;
    }

    /**
     * Returns the bytes of the item. They belong to the caller.
     *
     * @return the value
     */
    public byte[] value() { return value; }

    /**
     * Returns the value as text in UTF-8.
     *
     * @return the text
     */
    public String text() { return new String(value, StandardCharsets.UTF_8); }

    /**
     * Returns the value as a codec reads it.
     *
     * @param <T> the type of the value
     * @param codec the codec
     * @return the value
     */
    public <T> T value(Codec<T> codec) { return codec.decode(value); }

    /**
     * Returns the headers that it was pushed with, and the ones that name the schedule, source or
     * parent that it comes from.
     *
     * @return the headers
     */
    public synchronized Headers headers() {
        if (own == null) {
            own = new Headers(all.list().stream()
                    .filter(h -> !h.name().startsWith("Pq-") || ORIGINS.contains(h.name()))
                    .toList());
        }
        return own;
    }

    /**
     * Returns all headers as they came.
     *
     * @return the headers
     */
    public Headers all() { return all; }

    /**
     * Returns the id of the job, as its push returned it: the same through moves, death and redrives.
     *
     * @return the id
     */
    public String id() { return all.get("Pq-Id", ""); }

    /**
     * Returns where the item is now, which names it until it moves.
     *
     * @return the place
     */
    public String place() { return all.get("Pq-Place", id()); }

    /**
     * Returns the priority.
     *
     * @return the priority, 0 in a FIFO queue
     */
    public long priority() { return number("Pq-Priority"); }

    /**
     * Returns when the item was pushed, by the bridge's clock.
     *
     * @return the time
     */
    public Optional<Instant> pushedAt() { return time("Pq-Pushed-At"); }

    /**
     * Returns the group that takes turns with others.
     *
     * @return the group, "" for none
     */
    public String group() { return all.get("Pq-Group", ""); }

    /**
     * Returns the kind of job: the header Type.
     *
     * @return the type, "" for none
     */
    public String type() { return all.get("Type", ""); }

    /**
     * Returns the type of the value: the header Content-Type.
     *
     * @return the type, "" for none
     */
    public String contentType() { return all.get("Content-Type", ""); }

    /**
     * Returns the joiner that the item is a member of.
     *
     * @return the joiner: see {@link Push#joiner(JobRef)}
     */
    public Optional<JobRef> joiner() { return Optional.ofNullable(JobRef.of(all.get("Pq-Joiner", ""))); }

    /**
     * Returns the job whose acknowledgement pushed the item, if its queue has the setting trail.
     *
     * @return the job
     */
    public Optional<JobRef> parent() { return Optional.ofNullable(JobRef.of(all.get("Pq-Parent", ""))); }

    /**
     * Returns what has become of the members of a joiner, once it has waited.
     *
     * @return the counts
     */
    public Optional<Joined> joined() { return Optional.ofNullable(all.get("Pq-Joined")).map(Joined::of); }

    /**
     * Returns how many times the item was leased, a present lease included.
     *
     * @return the number
     */
    public int deliveries() { return (int) number("Pq-Deliveries"); }

    /**
     * Returns how many deliveries the settings of the queue allow.
     *
     * @return the number, 0 for no limit
     */
    public int maxDeliver() { return (int) number("Pq-Max-Deliver"); }

    /**
     * Reports whether the item becomes a dead letter if this delivery fails.
     *
     * @return whether this is the last delivery
     */
    public boolean lastTry() { return maxDeliver() > 0 && deliveries() >= maxDeliver(); }

    final long number(String header) {
        String text = all.get(header, "0");
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException e) {
            throw new BadReplyException("not the reply of a bridge: " + header + " is " + Wire.shown(text));
        }
    }

    final Optional<Instant> time(String header) { return Optional.ofNullable(Json.parseTime(all.get(header, ""))); }

    @Override
    public String toString() { return getClass().getSimpleName() + " " + id(); }
}
