package io.github.pqbridge;

import java.util.LinkedHashMap;
import java.util.Map;

/** Which items of a queue to list. All setters return this. */
public final class ItemsQuery {
    private static final int MAX_VALUE_BYTES = 65_536;

    final Map<String, Object> members = new LinkedHashMap<>();
    private final Map<String, Object> headers = new LinkedHashMap<>();

    private ItemsQuery() {}

    /**
     * Asks for all ready, delayed and leased items.
     *
     * @return a query to change
     */
    public static ItemsQuery of() { return new ItemsQuery(); }

    /**
     * Asks for items in one state.
     *
     * @param state ready, delayed, leased or done
     * @return this
     */
    public ItemsQuery state(State state) { return set("state", Wire.required("state", state).word()); }

    /**
     * Begins with the largest priority. Not in a FIFO queue.
     *
     * @return this
     */
    public ItemsQuery max() { return set("end", "max"); }

    /**
     * Asks for items whose value, header, id or holder contains a text.
     *
     * @param match the text
     * @return this
     */
    public ItemsQuery match(String match) { return set("match", Wire.checkText("match", match)); }

    /**
     * Asks for items that have a header with exactly this value.
     *
     * @param name the name
     * @param value the value
     * @return this
     */
    public ItemsQuery header(String name, String value) {
        headers.put(Wire.checkHeaderName(name), Wire.checkText("header " + name, value));
        return set("headers", headers);
    }

    /**
     * Sets how much of each value, and of each result, is returned.
     *
     * @param valueBytes up to 65,536; the default is 1,024
     * @return this
     */
    public ItemsQuery valueBytes(int valueBytes) {
        if (valueBytes < 0 || valueBytes > MAX_VALUE_BYTES) {
            throw new BadArgumentException("valueBytes " + valueBytes + ": want 0 to " + MAX_VALUE_BYTES);
        }
        return set("value_bytes", valueBytes);
    }

    /**
     * Asks for the attempts and successors of each job as well.
     *
     * @return this
     */
    public ItemsQuery attempts() { return set("attempts", true); }

    private ItemsQuery set(String name, Object value) {
        members.put(name, value);
        return this;
    }
}
