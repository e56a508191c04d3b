package pqotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/pqbridge/pqbridge/client"
)

// Middleware makes spans of the jobs of a Worker, and counts them. Put it first in
// WorkerOptions.Middleware, so that its spans have what other Middleware does.
func (t *Telemetry) Middleware(work client.Work) client.Work {
	return func(ctx context.Context, job *client.Job) error {
		queue := metric.WithAttributes(queueKey.String(job.Queue))
		producer := t.propagator.Extract(ctx, carrier(job.Headers))
		began := time.Now()
		if waited := began.Sub(job.PushedAt); job.Deliveries == 1 && !job.PushedAt.IsZero() && waited >= 0 { // unless clocks differ
			t.wait.Record(ctx, waited.Seconds(), queue)
			t.noteWait(producer, job, began)
		}

		ctx, span := t.tracer.Start(producer, "process "+job.Queue, trace.WithTimestamp(began),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(describe(job, "process")...))
		t.running.Add(ctx, 1, queue)

		outcome, err := "panicked", error(nil)
		defer func() { // also if the Work panics, which is for the Worker to recover
			t.end(ctx, span, job, outcome, err, time.Since(began))
			t.running.Add(ctx, -1, queue)
		}()
		err = work(ctx, job)
		outcome = outcomeOf(ctx, err)
		return err
	}
}

// noteWait makes the span of the time from the push to the first delivery, if the push has one.
func (t *Telemetry) noteWait(producer context.Context, job *client.Job, until time.Time) {
	if !trace.SpanContextFromContext(producer).IsRemote() {
		return
	}
	_, span := t.tracer.Start(producer, "wait "+job.Queue, trace.WithTimestamp(job.PushedAt),
		trace.WithAttributes(describe(job, "wait")...))
	span.End(trace.WithTimestamp(until))
}

func describe(job *client.Job, operation string) []attribute.KeyValue {
	return []attribute.KeyValue{
		system, queueKey.String(job.Queue), nameKey.String(operation), typeKey.String("process"),
		messageKey.String(job.ID), sizeKey.Int(len(job.Value)),
		priorityKey.Int64(job.Priority), deliveriesKey.Int64(job.Deliveries),
	}
}

// end ends the span of a job, and counts the job.
func (t *Telemetry) end(ctx context.Context, span trace.Span, job *client.Job, outcome string, err error, took time.Duration) {
	by := metric.WithAttributes(queueKey.String(job.Queue), outcomeKey.String(outcome))
	t.jobs.Add(ctx, 1, by)
	t.duration.Record(ctx, took.Seconds(), by)

	span.SetAttributes(outcomeKey.String(outcome))
	switch {
	case outcome == "done", outcome == "snoozed":
	case err != nil:
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	default:
		span.SetStatus(codes.Error, outcome)
	}
	span.End()
}

// outcomeOf returns what a Work has returned, and why if its context has ended.
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
