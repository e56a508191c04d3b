package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nats.client.Connection;
import io.nats.client.Dispatcher;
import io.nats.client.ErrorListener;
import io.nats.client.Message;
import io.nats.client.Options;
import java.io.File;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** What jnats does, and what this client makes of it. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ConnectionTest {
    private static final String USERS = """
            accounts: {A: {users: [
              {user: mute, password: x, permissions: {publish: ["$JS.>"], subscribe: [">"]}},
              {user: deaf, password: x, permissions: {publish: [">"], subscribe: ["other"]}},
              {user: all, password: x}]}}
            """;

    private TestServer server;
    private Connection nc;

    @AfterEach
    void stop() throws InterruptedException {
        if (nc != null) {
            nc.close();
        }
        server.close();
    }

    private Queue connect(Options.Builder options, Duration timeout) {
        nc = server.connect(options);
        return PqClient.builder(nc).timeout(timeout).build().priorityQueue("jobs");
    }

    /** Answers the requests on a subject as a bridge would. */
    private void answer(String subject, String headers, String body) {
        Dispatcher d = nc.createDispatcher(request -> {
            var about = new io.nats.client.impl.Headers();
            for (String header : headers.isEmpty() ? new String[0] : headers.split(",")) {
                about.put(header.split("=")[0], header.split("=")[1]);
            }
            nc.publish(request.getReplyTo(), about, body.getBytes(StandardCharsets.UTF_8));
        });
        d.subscribe(subject);
    }

    /** Interrupts a call once it waits, and returns what it has thrown. */
    private static CallInterruptedException interrupted(Runnable call, Runnable untilItWaits)
            throws InterruptedException {
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        AtomicReference<Boolean> flag = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try {
                call.run();
            } catch (Throwable e) {
                thrown.set(e);
                flag.set(Thread.currentThread().isInterrupted());
            }
        });
        thread.start();
        untilItWaits.run();
        thread.interrupt();
        thread.join(TestServer.PATIENCE.toMillis());
        assertFalse(thread.isAlive(), "the call ignores its interrupt");
        assertTrue(flag.get(), "the interrupt is forgotten");
        return assertInstanceOf(CallInterruptedException.class, thrown.get());
    }

    /** Without a bridge each request says so, whatever jnats does with "no responders" of its own. */
    @Test
    void noRespondersIsNoBridge() throws Exception {
        server = TestServer.nats("");
        for (Options.Builder options : List.of(new Options.Builder(), new Options.Builder().reportNoResponders())) {
            Queue queue = connect(options, Duration.ofMillis(300));

            NoBridgeException e = assertThrows(NoBridgeException.class, () -> queue.push("job"));
            assertFalse(e.unknown());
            assertTrue(e.passing());
            assertThrows(NoBridgeException.class, queue::len);
            assertThrows(NoBridgeException.class, queue::lease);
            assertThrows(NoBridgeException.class, () -> queue.pop(PopOptions.of().expires(TestServer.PATIENCE)));
            nc.close();
        }
    }

    /** Nulls are refused by name, before anything is sent. */
    @Test
    void nullsAreNamed() {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options(), TestServer.PATIENCE);
        Lease lease = new Lease(queue, new Received(new byte[0], Headers.NONE, "pq.jobs.ack.x", 0), Duration.ofSeconds(1));
        List<Executable> calls = List.of(
                () -> queue.push((Push) null), () -> queue.pushAsync(null), () -> queue.pushBatch(null),
                () -> queue.pushMany(null), () -> queue.all(null, List.of()), () -> queue.all(Push.of("a"), null),
                () -> queue.call(null), () -> queue.call(Push.of("a"), null), () -> queue.result((String) null),
                () -> queue.result(null, Duration.ZERO), () -> queue.result(JobName.id("a"), null),
                () -> queue.pop(null), () -> queue.lease(null), () -> queue.leaseBatch(1, null),
                () -> queue.items(null), () -> queue.get((String) null), () -> queue.get((JobName) null),
                () -> queue.rank(null), () -> queue.move(null, 1), () -> queue.remove(null), () -> queue.purge(null),
                () -> queue.removeItems(null), () -> queue.removeItems(java.util.Collections.singletonList(null)),
                () -> queue.configure(null), () -> queue.pause(null), () -> queue.schedule(null),
                () -> queue.unschedule(null), () -> queue.client().ackAll(null), () -> queue.client().priorityQueue(null),
                () -> lease.ack((Ack) null), () -> lease.nak(null), () -> lease.snooze(null), () -> lease.extend(null),
                () -> Ack.of().next("a", null), () -> Push.of("a", null), () -> PqClient.of(null));
        for (Executable call : calls) {
            BadArgumentException e = assertThrows(BadArgumentException.class, call, "call " + calls.indexOf(call));
            assertTrue(e.getMessage().contains("null"), e.getMessage());
        }
    }

    /** A message above max_payload is refused before it is sent, with its size and the limit. */
    @Test
    void tooLargeIsSaidBeforehand() {
        server = TestServer.nats("max_payload: 1000");
        Queue queue = connect(PqClient.options().noNoResponders(), Duration.ofMinutes(1));

        TooLargeException e = assertThrows(TooLargeException.class, () -> queue.push(new byte[1001]));
        assertFalse(e.unknown());
        assertTrue(e.getMessage().contains("1000"), e.getMessage());
        PushOutcome many = queue.pushMany(List.of(Push.of(new byte[2000]))).get(0);
        assertInstanceOf(TooLargeException.class, many.error());
        assertEquals(Connection.Status.CONNECTED, nc.getStatus());
    }

    /** A request that the server refuses was not sent, and says which permission is missing, without tokens. */
    @Test
    void deniedRequestWasNotSent() throws Exception {
        server = TestServer.nats(USERS);
        for (Options.Builder options : List.of(new Options.Builder(), PqClient.options())) {
            Queue queue = connect(options.userInfo("mute", "x"), TestServer.PATIENCE);

            DeniedException e = assertThrows(DeniedException.class, () -> queue.push("job"));
            assertTrue(e.getMessage().contains("pq.jobs.push"), e.getMessage());
            assertFalse(e.unknown());
            assertFalse(e.passing());
            assertThrows(DeniedException.class, () -> queue.lease(PopOptions.of().expires(TestServer.PATIENCE)));
            Received job = new Received(new byte[0], Headers.NONE, "pq.jobs.ack.secret", System.nanoTime());
            Lease lease = new Lease(queue, job, Duration.ofSeconds(30));
            DeniedException ack = assertThrows(DeniedException.class, lease::ack);
            assertFalse(ack.getMessage().contains("secret"), ack.getMessage());
            nc.close();
        }
    }

    /** Pushes that the server refuses together end as soon, though it does not say which it means. */
    @Test
    void deniedPushesEndTogether() throws Exception {
        server = TestServer.nats(USERS);
        for (Options.Builder options : List.of(new Options.Builder(), PqClient.options())) {
            Queue queue = connect(options.userInfo("mute", "x"), TestServer.PATIENCE);
            var pushes = Stream.generate(() -> queue.pushAsync(Push.of("job"))).limit(10).toList();
            for (CompletableFuture<Pushed> push : pushes) {
                var why = (PqException) assertThrows(ExecutionException.class, push::get).getCause();
                assertTrue(why.getMessage().contains("pq.jobs.push"), why.getMessage());
                assertFalse(why.passing(), why.toString());
            }
            nc.close();
        }
    }

    /** A client that may not receive replies sends nothing. */
    @Test
    void deniedInboxSendsNothing() throws Exception {
        server = TestServer.nats(USERS);
        Connection witness = server.connect(new Options.Builder().userInfo("all", "x"));
        var seen = witness.subscribe("pq.>");
        witness.flush(TestServer.PATIENCE);
        for (Options.Builder options : List.of(new Options.Builder(), PqClient.options())) {
            Queue queue = connect(options.userInfo("deaf", "x"), TestServer.PATIENCE);

            assertThrows(DeniedException.class, () -> queue.push("job"));
            assertThrows(DeniedException.class, queue::pop);
            assertThrows(DeniedException.class, queue::len);
            nc.publish("pq.last", new byte[0]);
            assertEquals("pq.last", seen.nextMessage(TestServer.PATIENCE).getSubject());
            nc.close();
        }
        witness.close();
    }

    /** An interrupted call ends at once, and says whether its request was sent. */
    @Test
    void interruptsEndCalls() throws Exception {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options().noNoResponders(), TestServer.PATIENCE);
        var sent = nc.subscribe("pq.>");
        Runnable untilSent = () -> {
            try {
                sent.nextMessage(TestServer.PATIENCE);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        };

        assertTrue(interrupted(() -> queue.push("job"), untilSent).unknown());
        assertFalse(interrupted(queue::len, untilSent).unknown());
        assertTrue(interrupted(() -> queue.lease(PopOptions.of().expires(TestServer.PATIENCE)), untilSent).unknown());
        assertFalse(interrupted(() -> {
            Thread.currentThread().interrupt();
            queue.push("job");
        }, () -> {}).unknown());

        server.kill();
        TestServer.await("the connection is lost", () -> nc.getStatus() != Connection.Status.CONNECTED);
        assertFalse(interrupted(() -> queue.push("job"), () -> {}).unknown());
    }

    /** An interrupt ends the wait for a server that is not there. */
    @Test
    void interruptsEndConnecting() throws Exception {
        server = TestServer.nats(""); // which others of these tests connect to
        Options options = PqClient.options().server("nats://127.0.0.1:1").build();
        Thread caller = Thread.currentThread();
        Thread other = new Thread(() -> {
            while (caller.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
            caller.interrupt();
        });
        other.start();
        assertThrows(CallInterruptedException.class, () -> PqClient.connect(options));
        assertTrue(Thread.interrupted());
        other.join();
        TestServer.await("nobody tries any more", () -> Thread.getAllStackTraces().values().stream()
                .flatMap(Stream::of)
                .noneMatch(call -> call.getMethodName().equals("connectImpl")));
    }

    /** An item that comes to an interrupted call is given back. */
    @Test
    void interruptedLeaseIsGivenBack() throws Exception {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options(), TestServer.PATIENCE);
        var pops = nc.subscribe("pq.jobs.pop.min");
        var acks = nc.subscribe("pq.jobs.ack.*");
        AtomicReference<Message> pop = new AtomicReference<>();
        interrupted(() -> queue.lease(PopOptions.of().expires(TestServer.PATIENCE)), () -> pop.set(next(pops)));

        String cancel = new String(next(pops).getData(), StandardCharsets.UTF_8);
        assertTrue(cancel.startsWith("{\"cancel\":"), cancel);
        var headers = new io.nats.client.impl.Headers().put("Pq-Frames", "1");
        byte[] frame = Wire.frame(0, List.of(new Header("Pq-Token", "token")), new byte[0]);
        nc.publish(pop.get().getReplyTo(), "_PQ.1", headers, frame);

        Message back = next(acks);
        assertEquals("pq.jobs.ack.token", back.getSubject());
        assertEquals("-NAK {\"snooze\":true}", new String(back.getData(), StandardCharsets.UTF_8));
    }

    private static Message next(io.nats.client.Subscription subscription) {
        try {
            Message message = subscription.nextMessage(TestServer.PATIENCE);
            assertTrue(message != null, "no message came");
            return message;
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** What follows a future never runs where jnats delivers messages. */
    @Test
    void futuresDoNotBlockReplies() throws Exception {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options(), TestServer.PATIENCE);
        answer("pq.jobs.push", "", "{\"queue\":\"jobs\",\"id\":\"1\",\"priority\":0}");
        CountDownLatch go = new CountDownLatch(1);

        CompletableFuture<Void> blocked = queue.pushAsync(Push.of("a")).thenRun(() -> {
            try {
                assertTrue(go.await(TestServer.PATIENCE.toSeconds(), TimeUnit.SECONDS));
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        });
        assertEquals("1", queue.push("b").id());
        go.countDown();
        blocked.get(1, TimeUnit.MINUTES);
    }

    /** A cancelled future ends its call. */
    @Test
    void cancelledFutureEndsItsCall() {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options().noNoResponders(), TestServer.PATIENCE);
        var sent = nc.subscribe("pq.>");
        CompletableFuture<JobResult> result = queue.resultAsync(JobName.id("1"), TestServer.PATIENCE);
        Message request = next(sent);

        result.cancel(true);

        assertTrue(result.isCancelled());
        Link link = Link.of(nc);
        TestServer.await("the request has ended", link::isIdle);
        nc.publish(request.getReplyTo(), new byte[0]); // nobody cares
    }

    /** Connections of this client notice within a minute that a server is gone, and never give up. */
    @Test
    void optionsSuitOutages() throws Exception {
        server = TestServer.nats(USERS);
        Options options = PqClient.options().build();
        assertEquals(Duration.ofSeconds(20), options.getPingInterval());
        assertEquals(-1, options.getMaxReconnect());
        assertEquals(Duration.ofMinutes(2), new Options.Builder().build().getPingInterval()); // of jnats

        Options refused = PqClient.options().server(server.url()).userInfo("all", "wrong").build();
        NotSentException e = assertThrows(NotSentException.class, () -> PqClient.connect(refused));
        assertTrue(e.getMessage().contains("Authorization Violation"), e.getMessage());
        Options allowed = PqClient.options().server(server.url()).userInfo("all", "x").build();
        server.kill();
        CompletableFuture<PqClient> waiting = CompletableFuture.supplyAsync(() -> PqClient.connect(allowed));
        server.start();
        PqClient client = waiting.get(1, TimeUnit.MINUTES);
        client.close();
        assertEquals(Connection.Status.CLOSED, client.connection().getStatus());
    }

    /** A login that a server refuses for some time after a restart is tried until it is accepted. */
    @Test
    void refusedLoginsAreTriedAgain() throws Exception {
        server = TestServer.nats(USERS);
        CountDownLatch refused = new CountDownLatch(5);
        PqClient client = PqClient.connect(PqClient.options()
                .server(server.url())
                .userInfo("all", "x")
                .reconnectWait(Duration.ofMillis(10))
                .errorListener(new ErrorListener() {
                    @Override
                    public void errorOccurred(Connection nc, String error) {
                        if (error.contains("Authorization Violation")) {
                            refused.countDown();
                        }
                    }
                }).build());
        nc = client.connection();

        for (int restart = 0; restart < 2; restart++) {
            server.kill();
            server.configure(USERS.replace("{user: all, password: x}", "{user: all, password: other}"));
            server.start();
            assertTrue(refused.await(1, TimeUnit.MINUTES), "refused " + (5 - refused.getCount()) + " times");
            server.kill();
            server.configure(USERS);
            server.start();
            TestServer.await("the connection is back", () -> nc.getStatus() == Connection.Status.CONNECTED);
        }
        assertThrows(NoBridgeException.class, () -> client.priorityQueue("jobs").len());
    }

    /** A connection that is closed has no link, though nobody could be told that it closed. */
    @Test
    void closedConnectionsHaveNoLinks() throws Exception {
        server = TestServer.nats("");
        ExecutorService callbacks = Executors.newSingleThreadExecutor();
        nc = server.connect(PqClient.options().callbackExecutor(callbacks));
        Link.of(nc);
        callbacks.shutdownNow();
        nc.close();

        Connection other = server.connect(PqClient.options());
        Link.of(other);
        assertNull(Link.known(nc));
        Link.of(nc);
        assertNull(Link.known(nc));
        other.close();
    }

    /** What is left of a client that is closed keeps no class loader. */
    @Test
    void closedClientsKeepNoClassLoader() throws Exception {
        server = TestServer.nats("");
        WeakReference<ClassLoader> loader = useInOwnLoader();
        TestServer.await("the class loader is gone", () -> {
            System.gc();
            return loader.get() == null;
        });
    }

    /** Uses a client whose classes have a loader of their own. */
    private WeakReference<ClassLoader> useInOwnLoader() throws Exception {
        List<URL> path = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            path.add(Path.of(entry).toUri().toURL());
        }
        try (var own = new URLClassLoader(path.toArray(new URL[0]), ClassLoader.getPlatformClassLoader())) {
            own.loadClass(LeaveNothing.class.getName()).getMethod("use", String.class).invoke(null, server.url());
            return new WeakReference<>(own);
        }
    }

    /** Does what needs threads: a push that fails, in the background, and a worker. */
    public static final class LeaveNothing {
        public static void use(String url) throws Exception {
            try (PqClient client = PqClient.connect(PqClient.options().server(url).build())) {
                Queue jobs = client.priorityQueue("jobs");
                Worker worker = Worker.builder(jobs).handle(job -> {}).start();
                assertThrows(ExecutionException.class, () -> jobs.resultAsync(JobName.id("1"), Duration.ZERO).get());
                worker.close();
            }
        }
    }

    /** What is not sent by an outage is not sent after it, and a closed connection ends all calls. */
    @Test
    void nothingIsSentLate() throws Exception {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options().noNoResponders(), Duration.ofMillis(300));
        queue.link.awaitReady("x", System.nanoTime() + TestServer.PATIENCE.toNanos());
        var sent = nc.subscribe("pq.>");
        nc.flush(TestServer.PATIENCE);
        server.kill();
        TestServer.await("the connection is lost", () -> nc.getStatus() != Connection.Status.CONNECTED);

        NotSentException e = assertThrows(NotSentException.class, () -> queue.push("lost"));
        assertTrue(e.passing());
        server.start();
        TestServer.await("the connection is back", () -> nc.getStatus() == Connection.Status.CONNECTED);
        CompletableFuture<Pushed> second = queue.pushAsync(Push.of("second"));
        assertEquals("second", new String(next(sent).getData(), StandardCharsets.UTF_8));
        Throwable unknown = assertThrows(ExecutionException.class, second::get).getCause();
        assertInstanceOf(UnknownOutcomeException.class, unknown);

        nc.close();
        NotSentException closed = assertThrows(NotSentException.class, () -> queue.push("late"));
        assertFalse(closed.passing());
    }

    /** A push whose reply is lost is repeated with the same message id, and its own duplicate is none. */
    @Test
    void lostReplyIsRepeated() throws Exception {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options().noNoResponders(), Duration.ofSeconds(4));
        var sent = nc.subscribe("pq.jobs.push");
        CompletableFuture<Pushed> push = queue.pushAsync(Push.of("job"));

        Message first = next(sent);
        Message second = next(sent);
        byte[] duplicate = "{\"queue\":\"jobs\",\"id\":\"1\",\"duplicate\":true}".getBytes(StandardCharsets.UTF_8);
        nc.publish(second.getReplyTo(), duplicate);

        assertEquals(first.getHeaders().getFirst("Nats-Msg-Id"), second.getHeaders().getFirst("Nats-Msg-Id"));
        assertEquals(new Pushed("jobs", "1", 0, false), push.get(1, TimeUnit.MINUTES));
    }

    /** Once an attempt may have counted, the outcome is unknown, whatever the last one says. */
    @Test
    void outcomeStaysUnknown() {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options(), Duration.ofMillis(500));
        answer("pq.jobs.push", "Nats-Service-Error-Code=503,Nats-Service-Error=late,Pq-Outcome=unknown", "");
        assertThrows(UnknownOutcomeException.class, () -> queue.push("job"));
        answer("pq.fifo.push", "Nats-Service-Error-Code=429,Nats-Service-Error=full,Pq-Reason=full", "");
        Queue full = PqClient.of(nc).priorityQueue("fifo");
        OverloadedException e = assertThrows(OverloadedException.class, () -> full.push("job"));
        assertEquals("full", e.reason());
        assertEquals(429, e.code());
    }

    /** What is not the reply of a bridge is said to be none. */
    @Test
    void strangeRepliesAreRefused() {
        server = TestServer.nats("");
        Queue queue = connect(PqClient.options(), TestServer.PATIENCE);
        answer("pq.jobs.push", "", "{\"stream\":\"s\",\"seq\":1}");
        answer("pq.jobs.len", "", "nonsense");
        answer("pq.jobs.info", "Nats-Service-Error-Code=many", "");
        answer("pq.jobs.result", "", "");
        assertThrows(BadReplyException.class, () -> queue.push("job"));
        assertThrows(BadReplyException.class, queue::len);
        assertThrows(BadReplyException.class, queue::info);
        assertThrows(BadReplyException.class, () -> queue.result("1"));
    }
}
