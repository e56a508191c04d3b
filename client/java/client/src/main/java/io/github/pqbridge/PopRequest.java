package io.github.pqbridge;

import io.nats.client.Message;
import io.nats.client.NUID;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A request that may bring items: it waits, can be cancelled, and loses nothing that has come. One
 * thread runs it; any may interrupt it.
 */
final class PopRequest {
    /** How long the bridge may take to end a request that was cancelled. */
    static final Duration CANCEL_TIME = Duration.ofSeconds(2);

    private static final Duration HEARTBEAT = Duration.ofSeconds(5);
    private static final Duration SHORT_HEARTBEAT = Duration.ofMillis(500);
    private static final Duration SHORT_LEASE = Duration.ofMillis(1500);
    private static final byte[] SNOOZE = "-NAK {\"snooze\":true}".getBytes(StandardCharsets.US_ASCII);
    private static final long CLOSE_MILLIS = 500; // for what came before the end of an inbox

    private final Link link;
    private final String subject;
    private final String acks; // the subject of acknowledgements up to the token
    private final Duration timeout;
    private final Duration expires;
    private final Duration heartbeat; // 0 for none
    private final String id; // by which it can be cancelled, "" if it does not wait
    private final int wanted;
    private final Acks.Message message;
    private final List<Received> received = new ArrayList<>();
    private long began;
    private boolean cancelled;
    private PqException failure;
    private volatile Inbox inbox; // once the request is being sent
    private volatile boolean stopping;
    private volatile boolean interrupted;

    /** A pop with the options of the protocol. Without expires it does not wait. */
    PopRequest(Queue q, boolean max, Duration expires, Map<String, Object> options, Duration ackWait) {
        q.checkEnd(max);
        link = q.link;
        subject = q.subject(q.isFifo() ? "pop" : max ? "pop.max" : "pop.min");
        acks = q.subject("ack.");
        timeout = q.client.timeout;
        this.expires = expires;
        wanted = (int) options.getOrDefault("batch", 1);
        Map<String, Object> all = Json.of("frames", true);
        all.putAll(options);
        boolean waits = expires.toMillis() > 0;
        id = waits ? NUID.nextGlobal() : "";
        heartbeat = waits ? heartbeat(ackWait) : Duration.ZERO;
        if (waits) {
            all.putAll(Json.of("id", id, "expires", Wire.durationText("expires", expires),
                    "idle_heartbeat", Wire.durationText("heartbeat", heartbeat)));
        }
        message = new Acks.Message(List.of(), Json.write(all));
    }

    /** An acknowledgement that leases up to as many. */
    PopRequest(Lease lease, int wanted, Acks.Message message) {
        link = lease.queue.link;
        subject = lease.ackSubject;
        acks = lease.acks();
        timeout = lease.patience();
        expires = Duration.ZERO;
        heartbeat = Duration.ZERO;
        id = "";
        this.wanted = wanted;
        this.message = message;
    }

    /** Returns how often to hear from the bridge: a lease begins up to that before its holder can know. */
    private static Duration heartbeat(Duration ackWait) {
        Duration part = ackWait.compareTo(SHORT_LEASE) < 0 ? SHORT_HEARTBEAT : ackWait.dividedBy(3);
        return ackWait.isZero() || part.compareTo(HEARTBEAT) > 0 ? HEARTBEAT : part;
    }

    /**
     * Returns the items; throws the error of the reply if there is none. An error after some items is
     * not thrown: the next request meets it again. If the thread is interrupted, the request is
     * cancelled, and leased items that still come are given back.
     */
    List<Received> run() {
        long deadline = System.nanoTime() + timeout.toNanos();
        Inbox opened = link.openInbox(subject, deadline);
        try {
            began = System.nanoTime();
            inbox = opened;
            if (!stopping) {
                link.publish(subject, opened.reply(), message.headers(), message.data(), deadline);
                Duration patience = id.isEmpty() ? timeout : expires.plus(Link.LATE_REPLY);
                read(opened, System.nanoTime() + patience.toNanos());
            }
            link.release(opened, true);
        } catch (InterruptedException e) {
            link.run(CompletableFuture.runAsync(() -> abandon(opened), Threads.LONG));
            throw new CallInterruptedException("interrupted while waiting for items", true);
        } catch (PqException e) {
            end(opened);
            failure = e;
        } finally {
            inbox = null;
        }
        if (received.isEmpty()) {
            throw failure == null ? new NotFoundException("no item came", 404, "empty") : failure;
        }
        return received;
    }

    /**
     * Cancels the request, and reports whether it may have been sent. Then run ends soon, maybe with
     * items that were on their way.
     */
    boolean interrupt() {
        stopping = true;
        if (inbox == null) {
            return false;
        }
        cancel();
        return true;
    }

    /** Reports whether it was interrupted, or the connection was lost. */
    boolean interrupted() { return interrupted; }

    /** Reads the reply to its end. Throws what broke it off. */
    private void read(Inbox in, long deadline) throws InterruptedException {
        // A bridge that is busy may be late with its heartbeats.
        long silence = Math.max(2 * heartbeat.toNanos(), Link.LATE_REPLY.toNanos());
        long last = System.nanoTime();
        long end = deadline;
        while (received.size() < wanted) {
            boolean silent = !heartbeat.isZero() && !cancelled && last + silence - end < 0;
            long until = silent ? last + silence : end;
            Message message = in.next(until);
            if (message != null && take(message)) {
                return;
            }
            if (message != null) {
                last = System.nanoTime();
                continue;
            }
            if (stopping || in.isLost()) {
                interrupted = true;
                // An acknowledgement has to be repeated at once, and nobody waits for NATS in order to stop.
                if (id.isEmpty() || link.isClosed() || stopping && !link.isConnected()) {
                    throw link.noReply(subject, true, "the connection was lost");
                }
                if (!cancelled && link.isConnected()) {
                    cancel();
                    cancelled = true;
                    end = System.nanoTime() + CANCEL_TIME.toNanos();
                    continue;
                }
            }
            if (System.nanoTime() - until >= 0) {
                throw silent
                        ? new NoHeartbeatException("no heartbeat for " + Duration.ofNanos(silence))
                        : link.noReply(subject, true, "waited too long");
            }
        }
    }

    /** Takes what a message has, notes its error, and reports whether it ends the reply. */
    private boolean take(Message message) {
        if (Link.isNobody(message)) {
            failure = new NoBridgeException("no bridge is listening on " + Wire.hideTokens(subject));
            return true;
        }
        if (!Link.header(message, "Pq-Heartbeat").isEmpty()) {
            // The bridge sent it at least an interval after the one before. When this process reads it
            // says little: it may have stood still.
            began += heartbeat.toNanos();
            return false;
        }
        int frames = Link.count(message, "Pq-Frames");
        for (Wire.Frame frame : frames == 0 ? List.<Wire.Frame>of() : Wire.parseFrames(message.getData(), frames)) {
            received.add(new Received(frame.value(), frame.headers(), ackSubject(message, frame.headers()), began));
        }
        failure = Link.errorOf(message);
        if (!Link.header(message, "Pq-Batch-Count").isEmpty()) {
            int sent = Link.count(message, "Pq-Batch-Count");
            if (sent > received.size()) {
                throw new UnknownOutcomeException(received.size() + " of " + sent + " items arrived", 0, "", true);
            }
            return true;
        }
        if (failure == null && frames == 0) {
            Headers headers = Headers.of(message.getHeaders());
            received.add(new Received(message.getData(), headers, message.getReplyTo(), began));
        }
        return failure != null;
    }

    /** Returns where to acknowledge an item of a frame: clients of other accounts answer the message. */
    private String ackSubject(Message message, Headers own) {
        String token = own.get("Pq-Token");
        String reply = message.getReplyTo();
        boolean other = reply != null && !reply.startsWith("_PQ.");
        return token == null ? "" : other ? reply : acks + token;
    }

    /** Ends a request whose reply is not complete, and takes what came before its end. */
    private void end(Inbox in) {
        try {
            for (Message message : link.close(in).get(CLOSE_MILLIS, TimeUnit.MILLISECONDS)) {
                take(message);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException | PqException e) {
            // the reply is not complete anyway
        }
    }

    /** Asks the bridge to end the request. The answer says nothing, so nobody reads it. */
    private void cancel() {
        if (!id.isEmpty() && link.isConnected()) {
            try {
                link.nc.publish(subject, link.nc.createInbox(), Json.write(Json.of("cancel", id)));
            } catch (IllegalStateException e) {
                // the connection is away: the request ends with the inbox
            }
        }
    }

    /** Ends a request that nobody waits for any more, and gives back what it still leases. */
    private void abandon(Inbox in) {
        try {
            cancel();
            cancelled = true;
            read(in, System.nanoTime() + CANCEL_TIME.toNanos());
        } catch (PqException | InterruptedException e) {
            // what has come is given back
        }
        end(in);
        for (Received r : received) {
            if (r.ackSubject() != null && !r.ackSubject().isEmpty()) {
                try {
                    link.nc.publish(r.ackSubject(), SNOOZE);
                } catch (IllegalStateException e) {
                    return; // the connection is away: leases end by themselves
                }
            }
        }
    }

    /** Returns the options of the protocol for a lease, in a frame so that none is left to nobody. */
    static Map<String, Object> leaseOptions(Duration ackWait, String holder) {
        return Json.of("ack_wait", Wire.durationText("ackWait", ackWait), "holder", holder);
    }

    static List<Item> pop(Queue q, PopOptions o, int n) {
        if (!Wire.required("options", o).ackWait.isZero() || o.holder != null) {
            throw new BadArgumentException("ackWait and holder of a pop: want them for leases only");
        }
        List<Item> items = new ArrayList<>();
        fetch(q, o, n, Json.of()).forEach(r -> items.add(new Item(r.value(), r.headers())));
        return items;
    }

    static List<Lease> lease(Queue q, PopOptions o, int n) {
        String holder = Wire.required("options", o).holder;
        Map<String, Object> options = leaseOptions(o.ackWait, holder == null ? q.client.holder : holder);
        return fetch(q, o, n, options).stream().map(r -> new Lease(q, r, o.ackWait)).toList();
    }

    private static List<Received> fetch(Queue q, PopOptions o, int n, Map<String, Object> options) {
        if (n > 1) {
            options.put("batch", n);
        }
        if (o.maxBytes > 0) {
            options.put("max_bytes", o.maxBytes);
        }
        for (long end = System.nanoTime() + o.expires.toNanos(); ; ) {
            Duration left = Duration.ofNanos(Math.max(0, end - System.nanoTime()));
            PopRequest request = new PopRequest(q, o.max, left, options, o.ackWait);
            try {
                return request.run();
            } catch (NotFoundException e) {
                if (!request.interrupted() || end - System.nanoTime() <= 0) {
                    return List.of(); // otherwise the connection is back: ask again
                }
            }
        }
    }

    static Optional<Item> peek(Queue q, String verb) {
        try {
            Received r = Received.in(q.link.read(q.subject(verb), Json.of("frames", true), q.client.timeout));
            return Optional.of(new Item(r.value(), r.headers()));
        } catch (NotFoundException e) {
            return Optional.empty();
        }
    }
}
