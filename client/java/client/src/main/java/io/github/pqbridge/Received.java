package io.github.pqbridge;

import io.nats.client.Message;

/**
 * An item as it came. The subject of its acknowledgements is "" if it is not leased; its lease began at
 * that time of System.nanoTime, or later.
 */
record Received(byte[] value, Headers headers, String ackSubject, long began) {
    /** Returns the one item of a reply, which may be in a frame. */
    static Received in(Message reply) {
        Headers about = Headers.of(reply.getHeaders());
        if (Link.count(reply, "Pq-Frames") == 0) {
            return new Received(reply.getData(), about, "", 0);
        }
        Wire.Frame frame = Wire.parseFrames(reply.getData(), 1).get(0);
        return new Received(frame.value(), frame.headers(), "", 0);
    }
}
