package io.github.pqbridge;

import java.util.ArrayList;
import java.util.List;

/** What the acknowledgement of a job says: its result, and what it pushes. All setters return this. */
public final class Ack {
    byte[] result;
    String contentType = "";
    final List<Push.Prepared> next = new ArrayList<>();

    private Ack() {}

    /**
     * Returns an acknowledgement without a result.
     *
     * @return one to change
     */
    public static Ack of() { return new Ack(); }

    /**
     * Sets what {@link Queue#result} returns if the job is kept.
     *
     * @param result the bytes; a bridge takes 64 KiB unless it is configured otherwise
     * @return this
     */
    public Ack result(byte[] result) { return result(result, Codec.BYTES); }

    /**
     * Sets what {@link Queue#result} returns if the job is kept.
     *
     * @param <T> the type of the result
     * @param result the result
     * @param codec turns it into bytes
     * @return this
     */
    public <T> Ack result(T result, Codec<T> codec) {
        this.result = Wire.required("codec", codec).encode(Wire.required("a result", result));
        return contentType(codec.contentType());
    }

    /**
     * Sets the type of the result.
     *
     * @param contentType the type, such as "application/json"
     * @return this
     */
    public Ack contentType(String contentType) {
        this.contentType = Wire.checkHeaderValue("Content-Type", contentType);
        return this;
    }

    /**
     * Pushes an item in the transaction that removes the job: both happen, or neither. The setting next
     * of the job's queue must name the other queue. Message ids, unique keys and weights are not
     * possible. For {@link Push#joiner(int)}, these items are counted from 0.
     *
     * @param queue the name of a queue of the same kind
     * @param push the item
     * @return this
     */
    public Ack next(String queue, Push push) {
        next.add(Wire.required("push", push).successor(queue, next.size()));
        return this;
    }
}
