package io.github.pqbridge;

import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/** Acknowledgements of leases, alone or several in one request. */
final class Acks {
    static final int MAX_SUCCESSORS = 256;

    private Acks() {}

    /** A lease to acknowledge, with the result of its job or null, and what is pushed. */
    record Done(Lease lease, byte[] result, String contentType, List<Push.Prepared> next) {
        static Done of(Lease lease) {
            return new Done(lease, null, "", List.of());
        }
    }

    /** The headers and payload of an acknowledgement. */
    record Message(List<Header> headers, byte[] data) {}

    /**
     * Returns the acknowledgement of leases, such as "+ACK", which goes to the subject of the first one.
     */
    static Message message(String ack, List<Done> all) {
        throw new UnsupportedOperationException();
    }

    /** Returns how many acknowledgements go into one request, at least one of these. */
    static int fitting(Iterable<Done> all, long maxPayload) {
        throw new UnsupportedOperationException();
    }

    /**
     * Acknowledges leases of one queue that go into one request, and returns the error of each, or null.
     * If the bridge refuses the request, for example because one lease is lost, each goes alone.
     */
    static List<PqException> together(List<Done> all) {
        throw new UnsupportedOperationException();
    }

    /**
     * Acknowledges leases of one queue, all or none, and leases as many from the same end of the queue.
     * NotFoundException, and TooLargeException with a reason, say that the acknowledgements count.
     */
    static List<Received> andLease(List<Done> all, String holder) {
        throw new UnsupportedOperationException();
    }

    /**
     * Sends what ends a lease until there is an answer, and reports whether it counts. GoOn gets each
     * error that may pass: it waits, or returns false to give up. Unknown says that an earlier request
     * may have been carried out. Throws LeaseLostException, and BadRequestException and
     * TooLargeException, which would be the same every time.
     */
    static boolean repeat(Runnable send, Predicate<PqException> goOn, boolean unknown) {
        throw new UnsupportedOperationException();
    }

    /** See PqClient.ackAll. */
    static Map<Lease, PqException> all(List<Lease> leases) {
        throw new UnsupportedOperationException();
    }
}
