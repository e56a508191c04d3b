package io.github.pqbridge.telemetry;

import io.github.pqbridge.Drop;
import io.github.pqbridge.Handler;
import io.github.pqbridge.Header;
import io.github.pqbridge.Headers;
import io.github.pqbridge.Job;
import io.github.pqbridge.Middleware;
import io.github.pqbridge.Push;
import io.github.pqbridge.Pushed;
import io.github.pqbridge.Queue;
import io.github.pqbridge.Snooze;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.TextMapGetter;
import io.opentelemetry.context.propagation.TextMapPropagator;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/**
 * Makes spans and meters of pushes and of the jobs of workers. Put it first among the middleware of
 * a worker, so that its spans include what the others do. It may be used by any number of threads.
 */
public final class PqTelemetry implements Middleware {
    private static final String QUEUE = "messaging.destination.name";
    private static final String OUTCOME = "pqbridge.outcome";
    /** Jobs take longer than the requests that other buckets suit. */
    private static final Duration[] BUCKETS = Stream.of(
                    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000,
                    1_800_000, 3_600_000, 21_600_000, 86_400_000)
            .map(Duration::ofMillis)
            .toArray(Duration[]::new);
    private static final Map<Job.Ending, String> OUTCOMES = Map.of(
            Job.Ending.TIMEOUT, "timed_out",
            Job.Ending.STOPPED, "stopped",
            Job.Ending.LOST, "lost");
    private static final TextMapGetter<Headers> GETTER = new TextMapGetter<>() {
        @Override
        public Iterable<String> keys(Headers headers) {
            return headers.list().stream().map(Header::name).toList();
        }

        @Override
        public String get(Headers headers, String key) {
            return headers.get(key);
        }
    };

    private final MeterRegistry registry;
    private final Map<String, AtomicInteger> running = new ConcurrentHashMap<>();
    private final Tracer tracer;
    private final TextMapPropagator propagator;

    /**
     * Makes a PqTelemetry.
     *
     * @param registry where the meters go
     * @param openTelemetry where the spans go, with the propagator that writes and reads headers:
     *     {@link OpenTelemetry#noop()} for none
     */
    public PqTelemetry(MeterRegistry registry, OpenTelemetry openTelemetry) {
        this.registry = registry;
        tracer = openTelemetry.getTracer("io.github.pqbridge.telemetry");
        propagator = openTelemetry.getPropagators().getTextMapPropagator();
    }

    @Override
    public void handle(Job job, Handler next) throws Exception {
        Instant began = Instant.now();
        Context producer = propagator.extract(Context.root(), job.headers(), GETTER);
        noteWait(job, producer, began);
        Span span = start(job, "process", producer)
                .setSpanKind(SpanKind.CONSUMER)
                .setStartTimestamp(began)
                .startSpan();
        AtomicInteger underWay = running.computeIfAbsent(job.queue(), queue -> registry.gauge(
                "pqbridge.worker.running", Tags.of(QUEUE, queue), new AtomicInteger()));
        underWay.incrementAndGet();

        long nanos = System.nanoTime();
        String outcome = "done";
        Scope scope = producer.with(span).makeCurrent();
        try {
            next.handle(job);
        } catch (Throwable thrown) {
            outcome = outcomeOf(job, thrown);
            if (!outcome.equals("snoozed")) {
                noteError(span, thrown);
            }
            throw thrown;
        } finally {
            scope.close();
            Tags tags = Tags.of(QUEUE, job.queue(), OUTCOME, outcome);
            registry.counter("pqbridge.worker.jobs", tags).increment();
            timer("duration", tags).record(Duration.ofNanos(System.nanoTime() - nanos));
            underWay.decrementAndGet();
            span.setAttribute(OUTCOME, outcome).end();
        }
    }

    private Timer timer(String name, Tags tags) {
        return Timer.builder("pqbridge.worker.job." + name)
                .serviceLevelObjectives(BUCKETS)
                .tags(tags)
                .register(registry);
    }

    private void noteWait(Job job, Context producer, Instant began) {
        Instant pushed = job.pushedAt().orElse(Instant.MAX);
        // If clocks differ, an item may seem to be delivered before its push.
        if (job.deliveries() != 1 || pushed.isAfter(began)) {
            return;
        }
        timer("wait", Tags.of(QUEUE, job.queue())).record(Duration.between(pushed, began));
        if (Span.fromContext(producer).getSpanContext().isValid()) { // or the push has no span
            start(job, "wait", producer).setStartTimestamp(pushed).startSpan().end(began);
        }
    }

    private SpanBuilder start(Job job, String operation, Context producer) {
        return describe(job.queue(), operation, "process", job.value().length)
                .setParent(producer)
                .setAttribute("messaging.message.id", job.id())
                .setAttribute("pqbridge.priority", job.priority())
                .setAttribute("pqbridge.deliveries", job.deliveries());
    }

    private static String outcomeOf(Job job, Throwable thrown) {
        if (thrown instanceof Snooze || thrown instanceof Drop) {
            return thrown instanceof Snooze ? "snoozed" : "dropped";
        }
        return job.ending().map(OUTCOMES::get).orElse("failed");
    }

    /**
     * Pushes an item, and makes a span of the push.
     *
     * @param queue where it goes
     * @param push the item, which gets the headers of the span
     * @return what the queue returned
     */
    public Pushed push(Queue queue, Push push) {
        Span span = describe(queue.name(), "push", "send", push.size())
                .setSpanKind(SpanKind.PRODUCER)
                .startSpan();
        Scope scope = span.makeCurrent();
        try {
            Pushed pushed = queue.push(link(push));
            span.setAttribute("messaging.message.id", pushed.id());
            span.setAttribute("pqbridge.priority", pushed.priority());
            span.setAttribute("pqbridge.duplicate", pushed.duplicate());
            return pushed;
        } catch (RuntimeException failed) {
            noteError(span, failed);
            throw failed;
        } finally {
            scope.close();
            span.end();
        }
    }

    /**
     * Makes the spans of an item children of the current span. It is for items of batches and of
     * calls; {@link #push} does it itself.
     *
     * @param push the item, which gets the headers of the current span
     * @return the item
     */
    public Push link(Push push) {
        propagator.inject(Context.current(), push, Push::setHeader);
        return push;
    }

    private SpanBuilder describe(String queue, String operation, String type, int size) {
        return tracer.spanBuilder(operation + " " + queue)
                .setAttribute("messaging.system", "pqbridge")
                .setAttribute(QUEUE, queue)
                .setAttribute("messaging.operation.name", operation)
                .setAttribute("messaging.operation.type", type)
                .setAttribute("messaging.message.body.size", size);
    }

    private static void noteError(Span span, Throwable thrown) {
        span.recordException(thrown).setStatus(StatusCode.ERROR, String.valueOf(thrown.getMessage()));
    }
}
