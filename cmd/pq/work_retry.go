package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
)

// longestRetry bounds the delay, unless the first one is longer.
const longestRetry = time.Minute

// retryAfter is how long an item stays back after its command has failed, if the backoff of its
// queue does not say: after the first delivery as long as --retry-delay says, and twice as long
// after each further one.
func retryAfter(first time.Duration, deliveries int64) time.Duration {
	delay, longest := first, max(first, longestRetry)
	for ; deliveries > 1 && 0 < delay && delay < longest; deliveries-- {
		delay *= 2
	}
	return min(delay, longest)
}

// failed returns err with the delay of a job that has failed, and logs that and what becomes of the
// job. It asks for the settings each time, so that a change counts at once. If that fails, the
// bridge decides.
func (w *work) failed(err error, s *session, job *client.Job) error {
	log := w.log.With("queue", job.Queue, "id", job.ID, "deliveries", job.Deliveries)
	log.Warn(jobFailed, "error", err)

	var set client.Settings
	if !w.blind {
		ctx, cancel := context.WithTimeout(s.finishing(), discovery.FirstAnswer)
		defer cancel()
		var unknown error
		if set, unknown = s.queue.Settings(ctx); unknown != nil {
			return err
		}
	}

	if set.MaxDeliver > 0 {
		log = log.With("max_deliver", set.MaxDeliver)
	}

	if set.Exhausted(job.Deliveries) {
		log.Warn("a job has had its last delivery: it becomes a dead letter", "in",
			set.DeadLetterQueue(job.Queue))
		return err
	}

	delay := set.BackoffAfter(job.Deliveries)
	if len(set.Backoff) == 0 {
		delay = retryAfter(w.retry, job.Deliveries)
		err = client.RetryAfter(delay, err)
	}

	log.Info("a job is tried again", "after", delay)
	return err
}

// jobFailed is what a Worker logs when a job has failed.
const jobFailed = "a job failed"

// logOnce is a log without that line, which the Worker would add after what has become of the job.
type logOnce struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logOnce) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == jobFailed {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logOnce) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logOnce{h.Handler.WithAttrs(attrs)}
}
