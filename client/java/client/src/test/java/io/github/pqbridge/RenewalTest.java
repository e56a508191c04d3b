package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nats.client.Connection;
import io.nats.client.Message;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Leases that are extended, by a bridge whose replies a test decides. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class RenewalTest {
    private final BlockingQueue<Message> requests = new LinkedBlockingQueue<>();
    private final BlockingQueue<PqException> lost = new LinkedBlockingQueue<>();
    private final BlockingQueue<PqException> failures = new LinkedBlockingQueue<>();
    private volatile String code = ""; // of the replies, "" for a success
    private TestServer server;
    private Connection nc;

    @BeforeEach
    void start() {
        server = TestServer.nats("");
        nc = server.connect(PqClient.options());
        nc.createDispatcher(request -> {
            requests.add(request);
            var headers = new io.nats.client.impl.Headers();
            if (!code.isEmpty()) {
                headers.put("Nats-Service-Error-Code", code);
            }
            nc.publish(request.getReplyTo(), headers, new byte[0]);
        }).subscribe("pq.jobs.ack.token");
    }

    @AfterEach
    void stop() throws InterruptedException {
        nc.close();
        server.close();
    }

    private Renewal renew(Duration ackWait) {
        Received job = new Received(new byte[0], Headers.NONE, "pq.jobs.ack.token", System.nanoTime());
        Lease lease = new Lease(PqClient.of(nc).priorityQueue("jobs"), job, ackWait);
        return new Renewal(lease, lost::add, failures::add);
    }

    private static <T> T next(BlockingQueue<T> queue) throws InterruptedException {
        T entry = queue.poll(1, TimeUnit.MINUTES);
        assertTrue(entry != null, "nothing came");
        return entry;
    }

    private static String text(Message message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    /** A lease is extended again and again until that is ended. */
    @Test
    void leaseIsExtendedUntilTheEnd() throws InterruptedException {
        Renewal renewal = renew(Duration.ofMillis(300));
        for (int i = 0; i < 5; i++) {
            assertEquals("+WPI", text(next(requests)));
        }
        assertFalse(renewal.end());
        assertTrue(lost.isEmpty());
        assertTrue(failures.isEmpty());
    }

    /** The latest progress is said soon, long before the lease has to be extended. */
    @Test
    void progressIsSaidSoon() throws InterruptedException {
        Renewal renewal = renew(Duration.ofHours(12));
        renewal.say(new byte[] {'1'});
        Message first = next(requests);
        assertEquals("1", text(first));
        assertEquals("+WPI", first.getHeaders().getFirst("Pq-Ack"));

        renewal.say(new byte[] {'2'});
        renewal.say(new byte[] {'3'});
        assertEquals("3", text(next(requests)));
        renewal.end();
    }

    /** A lease that the bridge calls lost is lost for certain, and told once. */
    @Test
    void lostLeaseIsTold() throws InterruptedException {
        code = "409";
        Renewal renewal = renew(Duration.ofMillis(300));
        assertInstanceOf(LeaseLostException.class, next(lost));
        assertTrue(renewal.end());
        assertEquals(1, requests.size());
        assertTrue(lost.isEmpty());
    }

    /** What fails is tried again while the lease lasts; after that it may be lost. */
    @Test
    void failuresAreTriedAgain() throws InterruptedException {
        code = "503";
        Renewal renewal = renew(Duration.ofSeconds(3));
        assertInstanceOf(UnavailableException.class, next(failures));
        assertInstanceOf(UnavailableException.class, next(lost));
        assertTrue(requests.size() > 2, requests.size() + " requests");
        assertFalse(renewal.end());

        code = "";
        Renewal other = renew(Duration.ofMillis(300));
        next(requests);
        other.end();
    }
}
