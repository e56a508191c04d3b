package io.github.pqbridge;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * A request that may bring items: it waits, can be cancelled, and loses nothing that has come. One
 * thread runs it; any may interrupt it.
 */
final class PopRequest {
    /** How long the bridge may take to end a request that was cancelled. */
    static final Duration CANCEL_TIME = Duration.ofSeconds(2);

    /** What has come so far. */
    final List<Received> received = new ArrayList<>();

    /** A pop with the options of the protocol. Without expires it does not wait. */
    PopRequest(Queue q, boolean max, Duration expires, Map<String, Object> options, Duration ackWait) {}

    /**
     * An acknowledgement that leases, with its payload and headers as Acks.message returns them. The
     * options are the ones in its payload.
     */
    PopRequest(Lease lease, Map<String, Object> options, Acks.Message message) {}

    /**
     * Returns the items; throws the error of the reply if there is none. An error after some items is
     * not thrown: the next request meets it again. If the thread is interrupted, the request is
     * cancelled, and leased items that still come are given back.
     */
    List<Received> run() {
        throw new UnsupportedOperationException();
    }

    /**
     * Cancels the request, and reports whether it may have been sent. Then run ends soon, maybe with
     * items that were on their way.
     */
    boolean interrupt() {
        throw new UnsupportedOperationException();
    }

    /** Reports whether it was interrupted, or the connection was lost. */
    boolean interrupted() {
        throw new UnsupportedOperationException();
    }

    /** Returns the options of the protocol for a lease, in a frame so that none is left to nobody. */
    static Map<String, Object> leaseOptions(Duration ackWait, String holder) {
        return Json.of("ack_wait", Wire.durationText("ackWait", ackWait), "holder", holder, "frames", true);
    }

    static List<Item> pop(Queue q, PopOptions o, int n) {
        throw new UnsupportedOperationException();
    }

    static List<Lease> lease(Queue q, PopOptions o, int n) {
        throw new UnsupportedOperationException();
    }

    static Optional<Item> peek(Queue q, String verb) {
        throw new UnsupportedOperationException();
    }
}
