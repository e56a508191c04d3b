package io.github.pqbridge;

import io.nats.client.Connection;
import io.nats.client.ConnectionListener.Events;
import io.nats.client.Dispatcher;
import io.nats.client.Message;
import io.nats.client.impl.NatsMessage;
import java.time.Duration;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * What all clients of a connection share: requests and their replies.
 *
 * <p>The request of jnats cannot be used. It takes every message with the status 503 for "no responders",
 * has one subscription for all replies, so that a late item counts as received, and buffers what is
 * sent during an outage. So requests that bring items have an {@link Inbox} each, and the replies to
 * all others come to one subscription of this link. Its dispatcher only hands them over.
 */
final class Link {
    /** How long a reply may be late. After that the bridge was killed, or NATS lost a message. */
    static final Duration LATE_REPLY = Duration.ofSeconds(5);

    /** For how long to look once more for a message, after a deadline: this process may have stood still. */
    static final long LAST_LOOK = TimeUnit.MILLISECONDS.toNanos(20);

    private static final Map<Connection, Link> LINKS = new ConcurrentHashMap<>();
    private static final int MAX_IDLE = 256;
    private static final long LOOK_MILLIS = 50;
    private static final Duration LONG_PING = Duration.ofMinutes(5);

    final Connection nc;
    final Refusals refusals;
    private final String base;
    private final AtomicLong requests = new AtomicLong();
    private final Map<String, Call> calls = new ConcurrentHashMap<>(); // by the subject of the reply
    private final Set<Inbox> inboxes = ConcurrentHashMap.newKeySet(); // of requests under way
    private final Deque<Inbox> idle = new ConcurrentLinkedDeque<>();
    private final Set<CompletableFuture<?>> background = ConcurrentHashMap.newKeySet();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final ReentrantLock hearing = new ReentrantLock();

    private Dispatcher dispatcher;
    private volatile String replies = "";
    private CompletableFuture<?> pings = CompletableFuture.completedFuture(null);
    private volatile PqException deaf; // why replies do not arrive
    private volatile int number; // of the connection to a server: it grows with each
    private volatile int heard = -1; // the number of the connection on which replies are allowed

    private Link(Connection nc) {
        this.nc = nc;
        base = nc.createInbox() + ".";
        refusals = new Refusals(this);
        nc.addConnectionListener((conn, type) -> notice(type));
    }

    /** Returns the link of a connection. */
    static Link of(Connection nc) {
        Link link = LINKS.computeIfAbsent(nc, Link::new);
        LINKS.keySet().removeIf(known -> known.getStatus() == Connection.Status.CLOSED); // nobody may have told that
        return link;
    }

    /** Returns the link of a connection that has one, or null. */
    static Link known(Connection nc) { return LINKS.get(nc); }

    /** A request under way. */
    interface UnderWay {
        /** Returns the subject that it was sent to. */
        String subject();

        /** Returns what its inbox subscribes to, "" without one of its own. */
        String subjects();

        /** Reports whether it has ended, though its thread may not know yet. */
        boolean isDone();

        /** Ends it. */
        void fail(PqException error);
    }

    /** A request that one message answers. */
    private static final class Call extends CompletableFuture<Message> implements UnderWay {
        private final String subject;
        private final boolean writes;
        private final boolean restless;

        Call(String subject, boolean writes, boolean restless) {
            this.subject = subject;
            this.writes = writes;
            this.restless = restless;
        }

        @Override
        public String subject() { return subject; }

        @Override
        public String subjects() { return ""; }

        @Override
        public void fail(PqException error) { completeExceptionally(error); }
    }

    boolean isConnected() { return nc.getStatus() == Connection.Status.CONNECTED; }

    /** Reports whether the connection is closed for good. */
    boolean isClosed() { return nc.getStatus() == Connection.Status.CLOSED; }

    long maxPayload() { return nc.getMaxPayload(); }

    // Requests

    /**
     * Sends a request once the connection is up, waits for its reply, and throws the error that the reply
     * says. Writes says that the request can change something: without a reply its outcome is unknown.
     * Restless gives up when the connection was lost, because the reply is lost too, most likely.
     */
    Message request(
            String subject, byte[] data, List<Header> headers, Duration timeout, boolean writes, boolean restless) {
        long deadline = System.nanoTime() + timeout.toNanos();
        Call call = new Call(subject, writes, restless);
        String reply = awaitReady(subject, deadline) + requests.incrementAndGet();
        calls.put(reply, call);
        try {
            publish(subject, reply, headers, data, deadline);
            return checked(await(call, deadline, timeout), subject);
        } finally {
            calls.remove(reply);
        }
    }

    /** Sends a request that only reads, with a body in JSON or none. */
    Message read(String subject, Map<String, Object> body, Duration timeout) {
        return request(subject, body == null ? new byte[0] : Json.write(body), List.of(), timeout, false, false);
    }

    private Message await(Call call, long deadline, Duration timeout) {
        try {
            try {
                return call.get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                refusals.look();
                return call.get(LAST_LOOK, TimeUnit.NANOSECONDS);
            }
        } catch (TimeoutException e) {
            throw noReply(call.subject, call.writes, "waited " + timeout);
        } catch (ExecutionException e) {
            throw (PqException) e.getCause();
        } catch (InterruptedException e) {
            String text = "interrupted while waiting for the reply on " + Wire.hideTokens(call.subject);
            throw new CallInterruptedException(text, call.writes);
        }
    }

    /** Returns a reply, unless it says an error. */
    static Message checked(Message reply, String subject) {
        if (isNobody(reply)) {
            throw new NoBridgeException("no bridge is listening on " + Wire.hideTokens(subject));
        }
        PqException error = errorOf(reply);
        if (error != null) {
            throw error;
        }
        return reply;
    }

    /** Reports whether NATS has said that there are no responders. */
    static boolean isNobody(Message reply) { return reply.isStatusMessage() && reply.getStatus().getCode() == 503; }

    /** Returns the error that a reply says, or null. */
    static PqException errorOf(Message reply) {
        String code = header(reply, "Nats-Service-Error-Code");
        String text = header(reply, "Nats-Service-Error");
        if (code.isEmpty() && text.isEmpty()) {
            return null;
        }
        if (!code.matches("[0-9]{1,9}")) {
            return new BadReplyException("not the reply of a bridge: an error with the code " + Wire.shown(code));
        }
        boolean unknown = header(reply, "Pq-Outcome").equals("unknown");
        return PqException.of(Integer.parseInt(code), header(reply, "Pq-Reason"), text, unknown);
    }

    /** Returns the value of a header, or "". */
    static String header(Message message, String name) {
        String value = message.getHeaders() == null ? null : message.getHeaders().getFirst(name);
        return value == null ? "" : value;
    }

    /** Returns the number in a header, 0 without it. */
    static int count(Message message, String name) {
        String text = header(message, name);
        if (!text.matches("[0-9]{0,9}")) {
            throw new BadReplyException("not the reply of a bridge: " + name + " is " + Wire.shown(text));
        }
        return text.isEmpty() ? 0 : Integer.parseInt(text);
    }

    /** Returns the error of a request without a reply. */
    PqException noReply(String subject, boolean writes, String why) {
        boolean closed = isClosed();
        String text = "no reply on " + Wire.hideTokens(subject) + ": " + (closed ? "the connection is closed" : why);
        return writes
                ? new UnknownOutcomeException(text, 0, "", !closed)
                : new UnavailableException(text, 503, "", !closed);
    }

    /** Publishes a request. Nothing was sent if it throws, unless it says that the outcome is unknown. */
    void publish(String subject, String reply, List<Header> headers, byte[] data, long deadline) {
        int size = Wire.blockSize(headers) + data.length;
        if (maxPayload() > 0 && size > maxPayload()) {
            throw new TooLargeException("a message of " + size + " bytes: the NATS server takes " + maxPayload()
                    + " at most, headers included", 413, "");
        }
        io.nats.client.impl.Headers sent = headers.isEmpty() ? null : new io.nats.client.impl.Headers();
        headers.forEach(h -> sent.add(h.name(), h.value()));
        refusals.watch();
        while (true) {
            if (Thread.currentThread().isInterrupted()) { // jnats would silently send nothing
                throw interrupted(subject);
            }
            try {
                nc.publish(NatsMessage.builder().subject(subject).replyTo(reply).headers(sent).data(data).build());
                return;
            } catch (IllegalStateException e) { // the connection was lost or closed just now, or its queue is full
                if (isConnected()) {
                    throw notSent(subject, e.getMessage(), !e.getMessage().contains("Draining")).because(e);
                }
                awaitConnected(subject, deadline);
            }
        }
    }

    private static PqException interrupted(String subject) {
        return new CallInterruptedException("interrupted before a request on " + Wire.hideTokens(subject), false);
    }

    private static PqException notSent(String subject, String why, boolean passing) {
        return new NotSentException("a request on " + Wire.hideTokens(subject) + ": " + why, passing);
    }

    // The connection

    /** Waits until the connection is up. */
    void awaitConnected(String subject, long deadline) {
        lock.lock();
        try {
            while (!isConnected()) {
                long left = deadline - System.nanoTime();
                if (isClosed() || left <= 0) {
                    String why = "the connection to NATS is " + (isClosed() ? "closed" : "down");
                    throw notSent(subject, why, !isClosed());
                }
                changed.awaitNanos(Math.min(left, TimeUnit.MILLISECONDS.toNanos(LOOK_MILLIS)));
            }
        } catch (InterruptedException e) {
            throw interrupted(subject);
        } finally {
            lock.unlock();
        }
    }

    /**
     * Waits until the connection is up and may receive replies, and returns how their subjects begin.
     * Otherwise a request would be carried out, and nobody would know. It asks once for each connection.
     */
    String awaitReady(String subject, long deadline) {
        awaitConnected(subject, deadline);
        if (heard == number) {
            return replies;
        }
        try {
            long left = Math.min(LATE_REPLY.toNanos(), deadline - System.nanoTime());
            if (!hearing.tryLock(Math.max(0, left), TimeUnit.NANOSECONDS)) {
                throw notSent(subject, "the server does not answer", true);
            }
            try {
                return heard == number ? replies : hear(deadline);
            } finally {
                hearing.unlock();
            }
        } catch (InterruptedException e) {
            throw interrupted(subject);
        } catch (IllegalStateException e) { // it is closed or draining
            throw notSent(subject, e.getMessage(), false).because(e);
        }
    }

    private String hear(long deadline) throws InterruptedException {
        if (dispatcher == null) {
            dispatcher = nc.createDispatcher(this::receive);
            dispatcher.setPendingLimits(0, 0);
        }
        if (replies.isEmpty() || deaf != null) {
            if (!replies.isEmpty()) {
                dispatcher.unsubscribe(replies + "*");
            }
            deaf = null;
            replies = base + "0" + requests.incrementAndGet() + ".";
            dispatcher.subscribe(replies + "*");
            if (Thread.currentThread().isInterrupted()) { // jnats may have sent nothing
                dispatcher.unsubscribe(replies + "*");
                replies = "";
                throw new InterruptedException();
            }
        }
        int asked = number;
        boolean answered = ping(Math.min(LATE_REPLY.toNanos(), deadline - System.nanoTime()));
        refusals.look();
        if (deaf != null) {
            throw deaf;
        }
        heard = answered ? asked : -1;
        return replies;
    }

    private void receive(Message reply) {
        Call call = calls.remove(reply.getSubject());
        if (call != null) {
            call.complete(reply);
        }
    }

    /** Reports whether the server has seen all that was sent, and said what it refuses. */
    private boolean ping(long nanos) throws InterruptedException {
        try {
            return (boolean) inTurn(() -> {
                try {
                    nc.flush(LONG_PING);
                    return true;
                } catch (TimeoutException | IllegalStateException e) {
                    return false;
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    return false;
                }
            }).get(Math.max(0, nanos), TimeUnit.NANOSECONDS);
        } catch (TimeoutException | ExecutionException e) {
            return false;
        }
    }

    /** Runs what sends a PING, one at a time: jnats closes its connection when three are not answered. */
    <T> CompletableFuture<T> inTurn(Supplier<T> task) {
        lock.lock();
        try {
            CompletableFuture<T> next = pings.handleAsync((value, error) -> task.get(), Threads.LONG);
            pings = next;
            return next;
        } finally {
            lock.unlock();
        }
    }

    private void notice(Events type) {
        if (type == Events.DISCONNECTED) {
            number++;
            calls.values().stream().filter(c -> c.restless).forEach(this::lose);
            inboxes.forEach(Inbox::lose);
        } else if (type == Events.CLOSED) {
            LINKS.remove(nc, this);
            calls.values().forEach(this::lose);
            inboxes.forEach(Inbox::lose);
        }
        lock.lock();
        try {
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    private void lose(Call call) { call.fail(noReply(call.subject, call.writes, "the connection was lost")); }

    /** Waits for a time, or until the connection has changed. Unknown says that something may have counted. */
    void pause(long nanos, boolean unknown) {
        lock.lock();
        try {
            changed.awaitNanos(nanos);
        } catch (InterruptedException e) {
            throw new CallInterruptedException("interrupted between two attempts", unknown);
        } finally {
            lock.unlock();
        }
    }

    /** Returns all requests under way. */
    List<UnderWay> underWay() { return Stream.<UnderWay>concat(calls.values().stream(), inboxes.stream()).toList(); }

    /** Notes that the server refuses a subscription, if it is the one for replies, and ends what waits for them. */
    void refuseReplies(String subjects, PqException why, PqException unknown) {
        if (subjects.equals(replies + "*")) {
            deaf = why;
            heard = -1;
            calls.values().forEach(call -> call.fail(unknown));
        }
    }

    // Inboxes

    /** Returns an inbox for a request that brings items, once the connection is up. */
    Inbox openInbox(String subject, long deadline) {
        awaitReady(subject, deadline);
        Inbox inbox = idle.pollLast();
        if (inbox == null) {
            try {
                inbox = new Inbox(this, base + requests.incrementAndGet() + ".");
            } catch (IllegalStateException e) {
                throw notSent(subject, e.getMessage(), false).because(e);
            }
            if (Thread.currentThread().isInterrupted()) { // jnats may have sent nothing
                close(inbox);
                throw interrupted(subject);
            }
        }
        inbox.begin(subject);
        inboxes.add(inbox);
        return inbox;
    }

    /** Ends the request of an inbox. Unless its reply is complete, nothing more is received. */
    void release(Inbox inbox, boolean complete) {
        if (complete && idle.size() < MAX_IDLE && inbox.isActive()) {
            inboxes.remove(inbox);
            idle.addLast(inbox);
        } else {
            close(inbox);
        }
    }

    /** Ends the request and the subscription of an inbox; its future has what came before that. */
    CompletableFuture<List<Message>> close(Inbox inbox) {
        return run(inTurn(inbox::close).whenComplete((rest, error) -> inboxes.remove(inbox)));
    }

    /** Reports whether no request is under way. */
    boolean isIdle() { return underWay().isEmpty(); }

    /** Notes what runs in the background. */
    <T> CompletableFuture<T> run(CompletableFuture<T> task) {
        background.add(task);
        task.whenComplete((value, error) -> background.remove(task));
        return task;
    }

    /** Waits for what runs in the background. */
    void await(Duration most) {
        try {
            CompletableFuture.allOf(background.toArray(new CompletableFuture<?>[0]))
                    .get(most.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException e) {
            // what is left ends by itself
        }
    }
}
