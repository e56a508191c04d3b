package io.github.pqbridge;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * The headers of an item: values keep their order, and names are compared byte by byte. Bytes that
 * are not UTF-8 are as {@link Header} has them.
 */
public final class Headers implements Iterable<Header> {
    /** No headers. */
    public static final Headers NONE = new Headers(List.of());

    private final byte[] block;
    private volatile List<Header> list;

    Headers(List<Header> list) {
        this.block = null;
        this.list = List.copyOf(list);
    }

    /** Reads a block when it is asked for. */
    Headers(byte[] block) { this.block = block; }

    /** Returns the headers of a message that jnats has received. */
    static Headers of(io.nats.client.impl.Headers received) {
        if (received == null) {
            return NONE;
        }
        List<Header> list = new ArrayList<>();
        received.forEach((name, values) -> values.forEach(value -> list.add(new Header(name, value))));
        return new Headers(list);
    }

    /**
     * Returns each header, in order.
     *
     * @return the headers
     */
    public List<Header> list() {
        List<Header> known = list;
        if (known == null) {
            list = known = List.copyOf(Wire.parseBlock(block));
        }
        return known;
    }

    /**
     * Returns the first value of a name.
     *
     * @param name the name
     * @return the value, null if there is none
     */
    public String get(String name) { return get(name, null); }

    String get(String name, String absent) {
        for (Header h : list()) { // the way of each job
            if (h.name().equals(name)) {
                return h.value();
            }
        }
        return absent;
    }

    /**
     * Returns all values of a name.
     *
     * @param name the name
     * @return the values in order, none if there are none
     */
    public List<String> all(String name) {
        return list().stream().filter(h -> h.name().equals(name)).map(Header::value).toList();
    }

    @Override
    public Iterator<Header> iterator() { return list().iterator(); }

    @Override
    public String toString() { return list().toString(); }
}
