package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nats.client.Subscription;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Requests that wait while the bridge and its NATS server are killed and started again. */
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class OutageTest {
    private static final Duration LONG = Duration.ofHours(1);

    private TestServer server;
    private PqClient client;
    private Queue queue;

    @BeforeEach
    void start() {
        server = TestServer.bridge();
        client = server.client();
        queue = client.priorityQueue("jobs");
    }

    @AfterEach
    void stop() throws InterruptedException {
        client.close();
        client.connection().close();
        server.close();
    }

    /** A result that waits goes on after a restart. What a pop may have taken is unknown: it ends soon. */
    @Test
    void resultsOutlastARestart() throws Exception {
        String id = queue.push(Push.of("job").keep(LONG)).id();
        Lease lease = queue.lease(PopOptions.of().ackWait(LONG)).orElseThrow();
        Subscription sent = client.connection().subscribe("*.*.pop.min");
        CompletableFuture<JobResult> result = queue.resultAsync(JobName.id(id), LONG);
        PopOptions waits = PopOptions.of().expires(LONG);
        var leased = CompletableFuture.supplyAsync(() -> queue.lease(waits), Threads.LONG);
        var popped = CompletableFuture.supplyAsync(() -> client.priorityQueue("other").pop(waits), Threads.LONG);
        assertNotNull(sent.nextMessage(TestServer.PATIENCE));
        assertNotNull(sent.nextMessage(TestServer.PATIENCE));

        server.kill();
        server.start();
        lease.ack("done".getBytes());
        queue.push("next");

        assertEquals("done", result.get(2, TimeUnit.MINUTES).text());
        for (CompletableFuture<?> pop : List.of(leased, popped)) {
            Throwable why = assertThrows(ExecutionException.class, () -> pop.get(2, TimeUnit.MINUTES)).getCause();
            assertEquals(UnknownOutcomeException.class, why.getClass());
        }
        assertEquals("next", queue.lease(waits).orElseThrow().text());
    }

    /** A worker that stops while NATS is away does not wait for a heartbeat, which cannot come. */
    @Test
    void stoppedPopsDoNotWaitForNats() throws Exception {
        Subscription sent = client.connection().subscribe("*.*.pop.min");
        PopRequest pop = new PopRequest(queue, false, LONG, PopRequest.leaseOptions(LONG, ""), LONG);
        var items = CompletableFuture.supplyAsync(pop::run, Threads.LONG);
        assertNotNull(sent.nextMessage(TestServer.PATIENCE));
        server.kill();
        TestServer.await("the connection is lost", () -> !queue.link.isConnected());

        assertTrue(pop.interrupt());

        Throwable why = assertThrows(ExecutionException.class, () -> items.get(2, TimeUnit.MINUTES)).getCause();
        assertEquals(UnknownOutcomeException.class, why.getClass()); // and not NoHeartbeatException
        assertTrue(why.getMessage().endsWith("the connection was lost"), why.getMessage());
    }

    /** A closed connection ends what waits, at once. */
    @Test
    void closingEndsWaits() throws Exception {
        Subscription sent = client.connection().subscribe("pq.jobs.*.>");
        var leased = CompletableFuture.supplyAsync(() -> queue.lease(PopOptions.of().expires(LONG)));
        assertEquals("pq.jobs.pop.min", sent.nextMessage(TestServer.PATIENCE).getSubject());
        CompletableFuture<JobResult> called = queue.callAsync(Push.of("job").priority(1).delay(LONG));
        TestServer.await("the job is there", () -> queue.items(ItemsQuery.of()).count() == 1);

        client.connection().close();

        Throwable why = assertThrows(ExecutionException.class, () -> leased.get(2, TimeUnit.MINUTES)).getCause();
        assertEquals(UnknownOutcomeException.class, why.getClass());
        why = assertThrows(ExecutionException.class, () -> called.get(2, TimeUnit.MINUTES)).getCause();
        assertEquals(NotDoneException.class, why.getClass());
    }
}
