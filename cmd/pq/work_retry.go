package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

// retryDelay is how long an item stays back after its command has failed, if the backoff of its
// queue does not say: after the first delivery this long, and twice as long after each further one.
type retryDelay struct {
	first time.Duration // 0 for none
	// blind says that this user may not read the settings of the queue.
	blind atomic.Bool
}

// longestRetry bounds the delay, unless the first one is longer.
const longestRetry = time.Minute

// after returns the delay after that many deliveries.
func (r *retryDelay) after(deliveries int64) time.Duration {
	delay, longest := r.first, max(r.first, longestRetry)
	for ; deliveries > 1 && 0 < delay && delay < longest; deliveries-- {
		delay *= 2
	}
	return min(delay, longest)
}

// of returns err with the delay of a job that has failed. It asks for the backoff each time, so
// that a change counts at once. If that fails, the bridge decides.
func (r *retryDelay) of(err error, s *session, job *client.Job) error {
	if r.first == 0 {
		return err
	}
	if !r.blind.Load() {
		ctx, cancel := context.WithTimeout(s.usable, discovery.FirstAnswer)
		defer cancel()
		settings, failed := s.queue.Settings(ctx)
		if len(settings.Backoff) > 0 || failed != nil && !r.blind.Load() {
			return err
		}
	}
	return client.RetryAfter(r.after(job.Deliveries), err)
}

// refused reports whether an error of the NATS server says no more than that the settings cannot be
// read, and remembers that.
func (r *retryDelay) refused(q *queue, err error) bool {
	g, bad := q.grammar()
	if bad != nil {
		return false
	}
	subject, bad := g.Build(subjects.Request{Kind: q.kind(), Verb: subjects.Info, Queue: q.name})
	if bad != nil || !strings.Contains(err.Error(), `"`+subject+`"`) {
		return false
	}
	r.blind.Store(true)
	return true
}
