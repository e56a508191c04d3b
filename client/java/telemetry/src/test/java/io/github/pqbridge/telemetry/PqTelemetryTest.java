package io.github.pqbridge.telemetry;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.pqbridge.BadArgumentException;
import io.github.pqbridge.Drop;
import io.github.pqbridge.Handler;
import io.github.pqbridge.Item;
import io.github.pqbridge.Outcome;
import io.github.pqbridge.PopOptions;
import io.github.pqbridge.PqClient;
import io.github.pqbridge.Push;
import io.github.pqbridge.Pushed;
import io.github.pqbridge.Queue;
import io.github.pqbridge.RetryAfter;
import io.github.pqbridge.Snooze;
import io.github.pqbridge.Worker;
import io.github.pqbridge.testing.Bridge;
import io.github.pqbridge.testing.Program;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.distribution.CountAtBucket;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.nats.client.Options;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class PqTelemetryTest {
    private static Bridge bridge;
    private static PqClient client;

    private final InMemorySpanExporter spans = InMemorySpanExporter.create();
    private final OpenTelemetrySdk openTelemetry = OpenTelemetrySdk.builder()
            .setTracerProvider(SdkTracerProvider.builder()
                    .addSpanProcessor(SimpleSpanProcessor.create(spans))
                    .build())
            .setPropagators(ContextPropagators.create(W3CTraceContextPropagator.getInstance()))
            .build();
    private final SimpleMeterRegistry registry = new SimpleMeterRegistry();
    private final PqTelemetry telemetry = new PqTelemetry(registry, openTelemetry);
    private final Queue jobs = client.priorityQueue("jobs-" + UUID.randomUUID());

    @BeforeAll
    static void start() {
        bridge = Bridge.start();
        client = PqClient.connect(Options.builder().server(bridge.url()).build());
    }

    @AfterAll
    static void stop() {
        client.close();
        bridge.close();
    }

    @AfterEach
    void closeTelemetry() {
        openTelemetry.close();
    }

    /** A push, its wait and its jobs are one trace, through NATS and the queue. */
    @Test
    void pushWaitAndJobsAreOneTrace() throws Exception {
        Pushed pushed = telemetry.push(jobs, Push.of("hello").priority(5).type("letter"));
        CountDownLatch done = new CountDownLatch(1);
        Handler handler = job -> {
            assertEquals("letter", job.type());
            openTelemetry.getTracer("test").spanBuilder("inner").startSpan().end();
            if (job.deliveries() == 1) {
                throw new RetryAfter(Duration.ZERO, "not yet");
            }
            done.countDown();
        };

        Worker worker = Worker.builder(jobs).handle(handler).middleware(telemetry).start();
        await(done);
        worker.close();

        SpanData push = span("push", 0);
        SpanData wait = span("wait", 0);
        SpanData first = span("process", 0);
        SpanData second = span("process", 1);
        for (SpanData child : List.of(wait, first, second)) {
            assertEquals(push.getTraceId(), child.getTraceId());
            assertEquals(push.getSpanId(), child.getParentSpanId());
        }
        assertTrue(spans.getFinishedSpanItems().stream().anyMatch(
                s -> s.getName().equals("inner") && s.getParentSpanId().equals(first.getSpanId())));
        assertEquals(6, spans.getFinishedSpanItems().size());
        assertFalse(wait.getStartEpochNanos() > wait.getEndEpochNanos());
        assertEquals(StatusCode.ERROR, first.getStatus().getStatusCode());
        assertEquals("not yet", first.getStatus().getDescription());
        assertEquals(StatusCode.UNSET, second.getStatus().getStatusCode());
        assertEquals(List.of(SpanKind.PRODUCER, SpanKind.INTERNAL, SpanKind.CONSUMER),
                List.of(push.getKind(), wait.getKind(), first.getKind()));
        for (SpanData span : List.of(push, first)) {
            assertEquals("pqbridge", text(span, "messaging.system"));
            assertEquals(jobs.name(), text(span, "messaging.destination.name"));
            assertEquals(pushed.id(), text(span, "messaging.message.id"));
            assertEquals(5, number(span, "pqbridge.priority"));
            assertEquals(5, number(span, "messaging.message.body.size"));
        }
        assertEquals("send", text(push, "messaging.operation.type"));
        assertEquals("process", text(wait, "messaging.operation.type"));
        assertEquals("wait", text(wait, "messaging.operation.name"));
        assertEquals("done", text(second, "pqbridge.outcome"));
        assertEquals(2, number(second, "pqbridge.deliveries"));
        assertEquals(Map.of("done", 1.0, "failed", 1.0), byOutcome("pqbridge.worker.jobs"));
        assertEquals(Map.of("done", 1.0, "failed", 1.0), byOutcome("pqbridge.worker.job.duration"));
        assertEquals(1, registry.get("pqbridge.worker.job.wait").timer().count());
        assertEquals(0, registry.get("pqbridge.worker.running").gauge().value());
    }

    /** Each way to end a job has an outcome. */
    @Test
    void eachWayToEndHasAnOutcome() throws Exception {
        Outcome.of(job -> telemetry.handle(job, j -> {}), Push.of("a"));
        for (Exception thrown : List.of(
                new IllegalStateException("no"), new Snooze(Duration.ofMinutes(1)), new Drop("why"))) {
            Outcome outcome = Outcome.of(job -> telemetry.handle(job, j -> {
                throw thrown;
            }), Push.of("a"));
            assertEquals(thrown, outcome.error(), "what the handler throws goes through");
        }
        assertEquals(1, spans.getFinishedSpanItems().stream()
                .filter(s -> "snoozed".equals(text(s, "pqbridge.outcome")))
                .filter(s -> s.getStatus().getStatusCode() == StatusCode.UNSET)
                .count());
        assertEquals(Map.of("done", 1.0, "failed", 1.0, "snoozed", 1.0, "dropped", 1.0),
                byOutcome("pqbridge.worker.jobs"));
        assertTrue(registry.find("pqbridge.worker.job.wait").meters().isEmpty());
    }

    /** What a worker ends has the outcome that says why. */
    @Test
    void whatAWorkerEndsSaysWhy() throws Exception {
        BlockingQueue<String> begun = new LinkedBlockingQueue<>();
        Handler handler = job -> {
            begun.add(job.id());
            Thread.sleep(Program.PATIENCE.toMillis());
        };
        Worker hasty = Worker.builder(jobs).handle(handler).middleware(telemetry)
                .jobTimeout(Duration.ofMillis(50)).retryDelay(Duration.ZERO).start();
        String late = jobs.push("late").id(); // is tried again, even if its time ends before it begins
        awaitOutcome("timed_out");
        hasty.close();
        jobs.remove(late);
        begun.clear();

        String lost = jobs.push("lost").id();
        Worker worker = Worker.builder(jobs).handle(handler).middleware(telemetry)
                .ackWait(Duration.ofMillis(300)).start();
        assertEquals(lost, poll(begun));
        jobs.remove(lost);
        awaitOutcome("lost");
        String stopped = jobs.push("stopped").id();
        assertEquals(stopped, poll(begun));
        worker.stop(Duration.ZERO);

        assertEquals(Set.of("timed_out", "lost", "stopped"), byOutcome("pqbridge.worker.jobs").keySet());
        assertEquals(0, registry.get("pqbridge.worker.running").gauge().value());
    }

    /** Pushes fail in the trace as well, and link is for those without a span. */
    @Test
    void pushesFailAndLink() {
        assertThrows(BadArgumentException.class,
                () -> telemetry.push(jobs, Push.of("a").delay(Duration.ofDays(1)).at(Instant.now())));
        SpanData failed = span("push", 0);
        assertEquals(StatusCode.ERROR, failed.getStatus().getStatusCode());
        assertEquals(1, failed.getEvents().size());

        assertFalse(telemetry.push(jobs, Push.of("a").msgId("one")).duplicate());
        assertTrue(telemetry.push(jobs, Push.of("a").msgId("one")).duplicate());
        assertTrue(span("push", 2).getAttributes().get(AttributeKey.booleanKey("pqbridge.duplicate")));

        Span parent = openTelemetry.getTracer("test").spanBuilder("parent").startSpan();
        Scope current = parent.makeCurrent();
        jobs.pushBatch(List.of(telemetry.link(Push.of("b"))));
        current.close();
        List<Item> items = jobs.popBatch(2, PopOptions.of());
        assertTrue(items.get(1).headers().get("traceparent").contains(parent.getSpanContext().getSpanId()));
    }

    /** Without OpenTelemetry there are meters, and without a trace the pusher's headers stay. */
    @Test
    void withoutOpenTelemetryThereAreMeters() {
        PqTelemetry meters = new PqTelemetry(registry, OpenTelemetry.noop());
        meters.push(jobs, Push.of("a"));

        Outcome.of(job -> meters.handle(job, j -> {}), Push.of("a"));

        assertEquals(null, jobs.pop().orElseThrow().headers().get("traceparent"));
        assertEquals(Map.of("done", 1.0), byOutcome("pqbridge.worker.jobs"));
    }

    /** Jobs take longer than requests: the buckets go from a millisecond to a day. */
    @Test
    void bucketsSuitJobs() {
        Outcome.of(job -> telemetry.handle(job, j -> {}), Push.of("a"));

        Timer timer = registry.get("pqbridge.worker.job.duration").timer();
        CountAtBucket[] buckets = timer.takeSnapshot().histogramCounts();
        assertEquals(16, buckets.length);
        assertEquals(1, buckets[0].bucket(TimeUnit.MILLISECONDS));
        assertEquals(1, buckets[15].bucket(TimeUnit.DAYS));
    }

    private SpanData span(String operation, int n) {
        return spans.getFinishedSpanItems().stream()
                .filter(s -> s.getName().equals(operation + " " + jobs.name()))
                .skip(n)
                .findFirst()
                .orElseThrow();
    }

    private static String text(SpanData span, String name) {
        return span.getAttributes().get(AttributeKey.stringKey(name));
    }

    private static long number(SpanData span, String name) {
        return span.getAttributes().get(AttributeKey.longKey(name));
    }

    /** The counts of a meter, by the outcome of jobs. */
    private Map<String, Double> byOutcome(String name) {
        Map<String, Double> counts = new TreeMap<>();
        for (Meter meter : registry.find(name).meters()) {
            counts.put(meter.getId().getTag("pqbridge.outcome"), meter.measure().iterator().next().getValue());
        }
        return counts;
    }

    private void awaitOutcome(String outcome) throws InterruptedException {
        long end = System.nanoTime() + Program.PATIENCE.toNanos();
        while (!byOutcome("pqbridge.worker.jobs").containsKey(outcome)) {
            assertTrue(System.nanoTime() < end, "no job " + outcome);
            Thread.sleep(10);
        }
    }

    private static String poll(BlockingQueue<String> begun) throws InterruptedException {
        return begun.poll(Program.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    private static void await(CountDownLatch done) throws InterruptedException {
        assertTrue(done.await(Program.PATIENCE.toSeconds(), TimeUnit.SECONDS));
    }
}
