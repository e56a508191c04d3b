package io.github.pqbridge;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** Acknowledgements of leases, alone or several in one request. */
final class Acks {
    static final int MAX_SUCCESSORS = 256;

    private static final int MAX_LEASES = 1000; // of one request
    private static final int MAX_BYTES = 4 << 20;
    private static final int HEADERS = 1024; // bytes of a request beside what it acknowledges
    private static final int TOKEN = 84; // bytes of each token in the JSON
    private static final int FRAME = 160; // bytes of the frame of a result, without that

    private Acks() {}

    /** A lease to acknowledge, with the result of its job or null, and what is pushed. */
    record Done(Lease lease, byte[] result, String contentType, List<Push.Prepared> next) {
        static Done of(Lease lease) { return new Done(lease, null, "", List.of()); }
    }

    /** The headers and payload of an acknowledgement. */
    record Message(List<Header> headers, byte[] data) {}

    /**
     * Returns the acknowledgement of leases, such as "+ACK", which goes to the subject of the first one.
     *
     * <p>What the others push names their leases, as its parents. Bridges from before the setting trail
     * refuse that, and nothing is done. As for any result that is refused, each job is then acknowledged
     * on its own: there none has to be named.
     */
    static Message message(String ack, List<Done> all) {
        List<byte[]> frames = new ArrayList<>();
        for (Done done : all) {
            int first = frames.size(); // joiners have the numbers of frames, results included, which come last
            String parent = done == all.get(0) ? "" : done.lease.token();
            done.next.forEach(item -> frames.add(item.frame(first, parent)));
        }
        for (Done done : all) {
            if (done.result == null) {
                continue;
            }
            List<Header> headers = new ArrayList<>();
            if (!done.contentType.isEmpty()) {
                headers.add(new Header("Content-Type", done.contentType));
            }
            if (all.size() == 1 && frames.isEmpty() && Wire.arePlain(headers)) {
                headers.add(new Header("Pq-Ack", ack));
                return new Message(headers, done.result);
            }
            headers.add(new Header("Pq-Token", done.lease.token()));
            frames.add(Wire.frame(0, headers, done.result));
        }
        if (frames.isEmpty()) {
            return new Message(List.of(), ack.getBytes(StandardCharsets.US_ASCII));
        }
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        frames.forEach(data::writeBytes);
        Header count = new Header("Pq-Frames", Integer.toString(frames.size()));
        return new Message(List.of(new Header("Pq-Ack", ack), count), data.toByteArray());
    }

    /**
     * Returns how many acknowledgements go into one request, at least one of these. Leases without a
     * token go alone. The numbers are upper bounds of what the others need.
     */
    static int fitting(Iterable<Done> all, long maxPayload) {
        long room = Math.min(maxPayload, MAX_BYTES) - HEADERS;
        int pushes = 0;
        int n = 0;
        for (Done done : all) {
            pushes += done.next.size();
            room -= TOKEN + done.next.stream().mapToInt(item -> TOKEN + 12 + item.size()).sum();
            room -= done.result == null ? 0 : FRAME + 3L * done.contentType.length() + done.result.length;
            boolean full = n == MAX_LEASES || room < 0 || pushes > MAX_SUCCESSORS;
            boolean alone = done.lease.token().isEmpty();
            if (n > 0 && (full || alone)) {
                return n;
            }
            n++;
            if (alone) {
                return n;
            }
        }
        return n;
    }

    private static List<String> others(List<Done> all) {
        return all.stream().skip(1).map(done -> done.lease.token()).toList();
    }

    /**
     * Acknowledges leases of one queue that go into one request, and returns the error of each, or null.
     * If the bridge refuses the request, for example because one lease is lost, each goes alone.
     */
    static List<PqException> together(List<Done> all) {
        Lease first = all.get(0).lease;
        PqException failure = null;
        try {
            String ack = all.size() == 1 ? "+ACK" : "+ACK " + Json.text(Json.of("also", others(all)));
            Message message = message(ack, all);
            first.settle(message.headers, message.data, first.patience());
        } catch (LeaseLostException | BadRequestException | InternalException e) {
            if (all.size() > 1) {
                return all.stream().flatMap(done -> together(List.of(done)).stream()).collect(Collectors.toList());
            }
            failure = e.reason().equals("done") ? null : e; // an earlier acknowledgement has counted
        } catch (PqException e) {
            failure = e;
        }
        return Collections.nCopies(all.size(), failure);
    }

    /**
     * Acknowledges leases of one queue, all or none, and leases as many from the same end of the queue.
     * NotFoundException, and TooLargeException with a reason, say that the acknowledgements count, and
     * there is no next one. After other exceptions they do not, or it is unknown.
     */
    static List<Received> andLease(List<Done> all, String holder) {
        Map<String, Object> options = Json.of("frames", true, "holder", holder);
        if (all.size() > 1) {
            options.put("batch", all.size());
            options.put("also", others(all));
        }
        return new PopRequest(all.get(0).lease, all.size(), message("+NXT " + Json.text(options), all)).run();
    }

    /**
     * Sends what ends a lease until there is an answer, and reports whether it counts. GoOn gets each
     * error that may pass: it waits, or returns false to give up. Unknown says that an earlier request
     * may have been carried out. Throws LeaseLostException, and BadRequestException and
     * TooLargeException, which would be the same every time.
     */
    static boolean repeat(Runnable send, Predicate<PqException> goOn, boolean unknown) {
        boolean mayCount = unknown;
        while (true) {
            try {
                send.run();
                return true;
            } catch (LeaseLostException e) {
                if (!mayCount && !e.reason().equals("done")) {
                    throw e;
                }
                return true;
            } catch (PqException e) {
                mayCount |= e.unknown();
                if (e instanceof BadRequestException || e instanceof TooLargeException && e.reason().isEmpty()) {
                    throw e;
                }
                if (!goOn.test(e)) {
                    return false;
                }
            }
        }
    }

    /** See PqClient.ackAll. */
    static Map<Lease, PqException> all(Collection<Lease> leases) {
        Map<String, List<Done>> queues = new LinkedHashMap<>(); // one request can acknowledge leases of one queue
        for (Lease lease : Wire.required("leases", leases)) {
            String acks = Wire.required("a lease", lease).acks();
            queues.computeIfAbsent(acks, q -> new ArrayList<>()).add(Done.of(lease));
        }
        Map<Lease, PqException> failed = new LinkedHashMap<>();
        for (List<Done> queue : queues.values()) {
            for (List<Done> rest = queue; !rest.isEmpty(); ) {
                int n = fitting(rest, rest.get(0).lease.queue.link.maxPayload());
                List<PqException> errors = together(rest.subList(0, n));
                for (int i = 0; i < n; i++) {
                    if (errors.get(i) != null) {
                        failed.put(rest.get(i).lease, errors.get(i));
                    }
                }
                rest = rest.subList(n, rest.size());
            }
        }
        return failed;
    }
}
