package io.github.pqbridge;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * An item to push: its value, and its options. All setters return this, and refuse what cannot be sent
 * with {@link BadArgumentException}.
 *
 * <pre>{@code queue.push(Push.of("hello").priority(5).type("email").delay(Duration.ofMinutes(10)));}</pre>
 */
public final class Push {
    static final int JOINER_SIZE = "Pq-Joiner: 65535\r\n".length();

    private static final Duration SECOND = Duration.ofSeconds(1);
    private static final int MAX_KEY = 512;
    private static final int MAX_GROUP = 128;
    private static final int MAX_WEIGHT = 100;
    private static final Map<String, String> RESERVED = Map.of(
            "Pq-Priority", "priority", "Pq-Delay", "delay", "Pq-Unique", "unique", "Pq-Group", "group",
            "Pq-Weight", "weight", "Pq-Keep", "keep", "Pq-Join", "join", "Pq-Joiner", "joiner");

    private final byte[] value;
    private final List<Header> own = new ArrayList<>();
    private final Map<String, String> options = new LinkedHashMap<>();
    private String contentType = "";
    private long priority;
    private int joiner = -1;
    private boolean identified = true;

    private Push(byte[] value) { this.value = Wire.required("a value", value); }

    /**
     * Pushes bytes as they are.
     *
     * @param value the bytes, which must not change until the push has returned
     * @return the item
     */
    public static Push of(byte[] value) { return new Push(value); }

    /**
     * Pushes text in UTF-8.
     *
     * @param value the text
     * @return the item
     */
    public static Push of(String value) { return of(value, Codec.TEXT); }

    /**
     * Pushes what a codec makes of a value.
     *
     * @param <T> the type of the value
     * @param value the value
     * @param codec the codec, whose content type becomes a header unless the item has one
     * @return the item
     */
    public static <T> Push of(T value, Codec<T> codec) {
        Push push = new Push(Wire.required("codec", codec).encode(Wire.required("a value", value)));
        push.contentType = codec.contentType();
        return push;
    }

    /**
     * Sets the priority: smaller ones come first. The default is 0, and a FIFO queue has no other.
     *
     * @param priority any number
     * @return this
     */
    public Push priority(long priority) {
        this.priority = priority;
        return this;
    }

    /**
     * Sets the kind of job, by which a worker finds its handler: the header Type.
     *
     * @param type the type
     * @return this
     */
    public Push type(String type) { return option("Type", type); }

    /**
     * Makes a later push with the same id, within the duplicate window of the queue, change nothing.
     * By default the id is random, so that a push of unknown outcome can be repeated.
     *
     * @param msgId 1 to 512 bytes
     * @return this
     */
    public Push msgId(String msgId) { return option("Nats-Msg-Id", checkSize("msgId", msgId, MAX_KEY)); }

    /**
     * Pushes without any message id. Then a push of unknown outcome is not repeated.
     *
     * @return this
     */
    public Push noMsgId() {
        options.remove("Nats-Msg-Id");
        identified = false;
        return this;
    }

    /**
     * Makes a later push with the same key change nothing for as long as this item is in the queue.
     *
     * @param unique 1 to 512 bytes
     * @return this
     */
    public Push unique(String unique) { return option("Pq-Unique", checkSize("unique", unique, MAX_KEY)); }

    /**
     * Holds the item back.
     *
     * @param delay for how long, up to ten years
     * @return this
     */
    public Push delay(Duration delay) { return option("Pq-Delay", Wire.durationText("delay", delay)); }

    /**
     * Holds the item back until a time.
     *
     * @param at the time, at most ten years ahead
     * @return this
     */
    public Push at(Instant at) { return option("Nats-Schedule", "@at " + Wire.timeText("at", at)); }

    /**
     * Makes the item expire.
     *
     * @param ttl after how long, 1 s to ten years
     * @return this
     */
    public Push ttl(Duration ttl) { return period("ttl", "Nats-TTL", ttl); }

    /**
     * Keeps the item from expiring, whatever the settings of the queue say.
     *
     * @return this
     */
    public Push neverExpires() { return option("Nats-TTL", "never"); }

    /**
     * Sets the group: among items of one priority, groups take turns.
     *
     * @param group 1 to 128 bytes
     * @return this
     */
    public Push group(String group) { return option("Pq-Group", checkSize("group", group, MAX_GROUP)); }

    /**
     * Sets how many items of the group have a turn together.
     *
     * @param weight 1 to 100; the default is 1
     * @return this
     */
    public Push weight(int weight) {
        if (weight < 1 || weight > MAX_WEIGHT) {
            throw new BadArgumentException("weight " + weight + ": want 1 to " + MAX_WEIGHT);
        }
        return option("Pq-Weight", Integer.toString(weight));
    }

    /**
     * Keeps the job once it is done, for {@link Queue#result}.
     *
     * @param keep for how long, 1 s to ten years
     * @return this
     */
    public Push keep(Duration keep) { return period("keep", "Pq-Keep", keep); }

    /**
     * Makes the item a joiner: it is delayed until all its members have ended, and then has
     * {@link Item#joined}. It has at most 64 KiB, and neither delay, at nor ttl.
     *
     * @param most for how long it waits at most, 1 s to ten years
     * @return this
     */
    public Push join(Duration most) { return period("join", "Pq-Join", most); }

    /**
     * Makes the item a member of a joiner that waits, in this queue or in one that the setting next of
     * this queue names. It has ended when it is acknowledged, a dead letter, removed, popped or expired.
     *
     * @param joiner the joiner, from {@link Pushed#ref}, {@link OpenJoin#ref} or {@link Item#joiner}
     * @return this
     */
    public Push joiner(JobRef joiner) {
        this.joiner = -1;
        return option("Pq-Joiner", Wire.required("joiner", joiner).toString());
    }

    /**
     * Makes the item a member of one that comes before it in the same request: in {@link Queue#all} or
     * {@link Queue#pushBatch}, or among what one acknowledgement pushes.
     *
     * @param number how many items come before the joiner
     * @return this
     */
    public Push joiner(int number) {
        if (number < 0) {
            throw new BadArgumentException("joiner " + number + ": want the number of an item before it");
        }
        options.remove("Pq-Joiner");
        joiner = number;
        return this;
    }

    /**
     * Adds a header, which comes back with the item.
     *
     * @param name the name; those that begin with Pq- are reserved
     * @param text the value, in one line; for bytes that are not UTF-8 see {@link Header}
     * @return this
     */
    public Push header(String name, String text) {
        Wire.checkHeaderName(name);
        if (name.startsWith("Pq-")) {
            String instead = RESERVED.containsKey(name) ? ", want " + RESERVED.get(name) + "(...)" : "";
            throw new BadArgumentException("header " + name + ": names that begin with Pq- are reserved" + instead);
        }
        own.add(new Header(name, Wire.checkHeaderValue(name, text)));
        return this;
    }

    /**
     * Sets a header in place of all that it has with this name: see {@link #header}.
     *
     * @param name the name
     * @param text the value
     * @return this
     */
    public Push setHeader(String name, String text) {
        own.removeIf(h -> h.name().equals(name));
        return header(name, text);
    }

    /**
     * Returns how many bytes the value has.
     *
     * @return the number
     */
    public int size() { return value.length; }

    /**
     * Adds headers.
     *
     * @param headers the headers, such as those of an item
     * @return this
     */
    public Push headers(Iterable<Header> headers) {
        Wire.required("headers", headers).forEach(h -> header(h.name(), h.value()));
        return this;
    }

    private Push option(String header, String text) {
        options.put(header, Wire.checkHeaderValue(header, text));
        return this;
    }

    private Push period(String what, String header, Duration d) {
        Wire.checkDuration(what, d, SECOND, Wire.TEN_YEARS);
        return option(header, Wire.durationText(what, d));
    }

    private static String checkSize(String what, String text, int most) {
        int size = Wire.required(what, text).strip().getBytes(StandardCharsets.UTF_8).length;
        if (size < 1 || size > most) {
            throw new BadArgumentException(what + " of " + size + " bytes: want 1 to " + most);
        }
        return text;
    }

    boolean has(String header) { return options.containsKey(header); }

    /** Returns the same item, to change it. */
    Push copy() {
        Push copy = new Push(value);
        copy.own.addAll(own);
        copy.options.putAll(options);
        copy.contentType = contentType;
        copy.priority = priority;
        copy.joiner = joiner;
        copy.identified = identified;
        return copy;
    }

    boolean isMember() { return joiner >= 0 || has("Pq-Joiner"); }

    /** Returns the member that keeps this joiner waiting. */
    Push guard(Duration open) {
        Push guard = of(new byte[0]).priority(priority).delay(Wire.TEN_YEARS).period("open", "Nats-TTL", open);
        guard.identified = identified;
        return has("Nats-Msg-Id") ? guard.msgId(options.get("Nats-Msg-Id") + ".guard") : guard;
    }

    /** An item as it is sent. The joiner is the number of one before it, or -1. */
    record Prepared(
            long priority, List<Header> headers, byte[] value, boolean hasId, boolean ownId, int joiner, int size) {
        /**
         * Returns the frame, where the item that the joiner counts from has the number first. Parent is
         * the token of the lease whose job pushes it, "" for the one in the subject.
         */
        byte[] frame(int first, String parent) {
            List<Header> all = new ArrayList<>(headers);
            if (joiner >= 0) {
                all.add(new Header("Pq-Joiner", Integer.toString(first + joiner)));
            }
            if (!parent.isEmpty()) {
                all.add(new Header("Pq-Token", parent));
            }
            return Wire.frame(priority, all, value);
        }
    }

    /**
     * Returns the item as it is sent. An item without a message id gets this one unless it is "". Before
     * is how many items of the same request its joiner may be among.
     */
    Prepared prepare(String msgId, int before, Header... given) {
        if (has("Pq-Delay") && has("Nats-Schedule")) {
            throw new BadArgumentException("delay and at: want one of them");
        }
        if (joiner >= 0 && joiner >= before) {
            throw new BadArgumentException("joiner " + joiner + ": want the number of an item before it");
        }
        boolean named = has("Nats-Msg-Id") || own.stream().anyMatch(h -> h.name().equals("Nats-Msg-Id"));
        boolean ownId = !named && identified && !msgId.isEmpty();
        List<Header> all = new ArrayList<>(List.of(given));
        own.stream().filter(h -> !has(h.name())).forEach(all::add);
        options.forEach((name, text) -> all.add(new Header(name, text)));
        if (!contentType.isEmpty() && all.stream().noneMatch(h -> h.name().equals("Content-Type"))) {
            all.add(new Header("Content-Type", contentType));
        }
        if (ownId) {
            all.add(new Header("Nats-Msg-Id", msgId));
        }
        int size = Wire.FRAME_HEAD + Wire.blockSize(all) + value.length + (joiner < 0 ? 0 : JOINER_SIZE);
        return new Prepared(priority, all, value, named || ownId, ownId && !has("Pq-Unique"), joiner, size);
    }

    /** Returns the item as an acknowledgement pushes it, behind that many others of the same job. */
    Prepared successor(String queue, int before) {
        if (before >= Acks.MAX_SUCCESSORS) {
            throw new BadArgumentException("next: an acknowledgement pushes at most " + Acks.MAX_SUCCESSORS + " items");
        }
        return prepare("", before, new Header("Pq-Queue", Wire.checkQueue(queue)));
    }
}
