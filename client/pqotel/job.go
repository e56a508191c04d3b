package pqotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pqbridge/pqbridge/client"
)

// Middleware makes spans of the jobs of a Worker and counts them. Put it first in
// WorkerOptions.Middleware, so that its spans include what other Middleware does.
func (t *Telemetry) Middleware(work client.Work) client.Work {
	return func(ctx context.Context, job *client.Job) error {
		queue, began := semconv.MessagingDestinationName(job.Queue), time.Now()
		producer := t.propagator.Extract(ctx, carrier(job.Headers))

		// If clocks differ, an item may seem to be delivered before its push.
		waited := began.Sub(job.PushedAt)
		if job.Deliveries == 1 && !job.PushedAt.IsZero() && waited >= 0 {
			t.wait.Record(ctx, waited.Seconds(), metric.WithAttributes(queue))
			if trace.SpanContextFromContext(producer).IsRemote() { // otherwise the push has no span
				_, span := t.start(producer, job, "wait", trace.WithTimestamp(job.PushedAt))
				span.End(trace.WithTimestamp(began))
			}
		}

		ctx, span := t.start(producer, job, "process",
			trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindConsumer))
		defer span.End() // even if the error cannot say what it is
		t.running.Add(ctx, 1, metric.WithAttributes(queue))

		// If the Work panics, the outcome stays as it is here; the Worker recovers.
		outcome, err := "panicked", error(nil)
		defer func() {
			by := attribute.String("pqbridge.outcome", outcome)
			t.jobs.Add(ctx, 1, metric.WithAttributes(queue, by))
			t.duration.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(queue, by))
			t.running.Add(ctx, -1, metric.WithAttributes(queue))

			span.SetAttributes(by)
			switch {
			case outcome == "panicked":
				span.SetStatus(codes.Error, outcome)
			case outcome != "done" && outcome != "snoozed":
				noteError(span, err)
			}
		}()

		err = work(ctx, job)
		outcome = outcomeOf(ctx, err)
		return err
	}
}

// start begins a span of a job.
func (t *Telemetry) start(ctx context.Context, job *client.Job, operation string,
	options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, operation+" "+job.Queue, append(options,
		describe(job.Queue, operation, semconv.MessagingOperationTypeProcess, job.Value),
		trace.WithAttributes(semconv.MessagingMessageID(job.ID),
			attribute.Int64("pqbridge.priority", job.Priority),
			attribute.Int64("pqbridge.deliveries", job.Deliveries)))...)
}

// outcomeOf returns the outcome of a job whose Work returned err.
func outcomeOf(ctx context.Context, err error) string {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return "done"
	case client.IsSnooze(err):
		return "snoozed"
	case client.IsDrop(err):
		return "dropped"
	case errors.Is(cause, client.ErrTimedOut):
		return "timed_out"
	case errors.Is(cause, client.ErrStopped):
		return "stopped"
	case errors.Is(cause, client.ErrLeaseLost):
		return "lost"
	}
	return "failed"
}
