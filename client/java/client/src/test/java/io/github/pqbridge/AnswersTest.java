package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nats.client.Connection;
import io.nats.client.Message;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.ResourceBundle;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a worker sends for a job, by the answers of a bridge that a test plays. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class AnswersTest {
    private static final Duration LONG = Duration.ofHours(1);
    private static final List<Header> HEADERS = List.of(new Header("Pq-Token", "token"), new Header("Pq-Id", "1"));

    private final BlockingQueue<String> sent = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> errors = new LinkedBlockingQueue<>(); // that are logged
    private Iterator<String> codes = List.<String>of().iterator(); // of the answers to acknowledgements, then "500"
    private TestServer server;
    private Connection nc;
    private Queue queue;

    @BeforeEach
    void start() {
        server = TestServer.nats("");
        nc = server.connect(PqClient.options());
        queue = PqClient.of(nc).priorityQueue("jobs");
        nc.createDispatcher(this::answer).subscribe("pq.jobs.pop.min").subscribe("pq.jobs.ack.*");
    }

    @AfterEach
    void stop() throws InterruptedException {
        nc.close();
        server.close();
    }

    private void answer(Message request) {
        String text = new String(request.getData(), StandardCharsets.UTF_8);
        var headers = new io.nats.client.impl.Headers();
        if (text.startsWith("{\"cancel\"")) {
            return; // the worker stops
        }
        if (request.getSubject().endsWith(".pop.min")) {
            sent.add("pop");
            headers.put("Pq-Frames", "1");
            byte[] frame = Wire.frame(0, HEADERS, new byte[0]);
            nc.publish(request.getReplyTo(), "_PQ.1", headers, frame);
        } else {
            sent.add(text.split(" ")[0]);
            headers.put("Nats-Service-Error-Code", codes.hasNext() ? codes.next() : "500");
            nc.publish(request.getReplyTo(), headers, new byte[0]);
        }
    }

    private void sends(String... want) throws InterruptedException {
        for (String text : want) {
            assertEquals(text, sent.poll(1, TimeUnit.MINUTES));
        }
    }

    private Worker work(Handler handler) {
        System.Logger log = new System.Logger() {
            @Override
            public String getName() {
                return "test";
            }

            @Override
            public boolean isLoggable(Level level) {
                return true;
            }

            @Override
            public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
                if (level == Level.ERROR) {
                    errors.add(text);
                }
            }

            @Override
            public void log(Level level, ResourceBundle bundle, String text, Object... params) {
                throw new AssertionError(text);
            }
        };
        return Worker.builder(queue).logger(log).ackWait(LONG).handle(handler).start();
    }

    /** A 500 ends the attempts to settle a job, after +NXT one +ACK, and frees the slot. */
    @Test
    void faultsAreAnswers() throws InterruptedException {
        Worker worker = work(job -> {});
        sends("pop", "+NXT", "+ACK", "pop", "+NXT", "+ACK", "pop");
        worker.close();
        assertEquals("priority queue jobs: cannot settle job 1, which comes back", errors.take());

        List<Exception> failures =
                List.of(new Exception("it fails"), new Snooze(LONG), new Drop("no address"), new RetryAfter(LONG, "later"));
        for (Exception failure : failures) {
            sent.clear();
            errors.clear();
            String ack = failure instanceof Drop ? "+TERM" : "-NAK";
            Worker failing = work(job -> {
                throw failure;
            });
            sends("pop", ack, "pop", ack, "pop");
            failing.close();
            assertEquals("priority queue jobs: cannot settle job 1, which comes back", errors.take());
        }
    }

    /** Only what may pass is sent again, until there is an answer. */
    @Test
    void whatMayPassIsSentAgain() throws InterruptedException {
        codes = List.of("503", "429", "503", "500", "503", "500").iterator();
        Worker worker = work(job -> {});
        sends("pop", "+NXT", "+ACK", "+ACK", "+ACK", "pop", "+NXT", "+ACK", "pop");
        worker.close();
    }

    /** A worker that stops takes the first 500 for the answer to its +ACK. */
    @Test
    void faultsAreAnswersDuringAStop() throws InterruptedException {
        BlockingQueue<Job> begun = new LinkedBlockingQueue<>();
        Worker worker = work(job -> {
            begun.add(job);
            while (job.ending().isEmpty()) {
                Thread.onSpinWait();
            }
        });
        sends("pop");
        assertTrue(begun.poll(1, TimeUnit.MINUTES) != null);
        worker.stop(Duration.ZERO);
        sends("+ACK");
        assertTrue(sent.isEmpty(), sent.toString());
        assertEquals("priority queue jobs: cannot settle job 1, which comes back", errors.take());
    }
}
