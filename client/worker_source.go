package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// source is a queue that a worker gets jobs from.
type source struct {
	*Worker
	queue   *handle
	verb    subjects.Verb // that leases
	log     *slog.Logger
	ackWait time.Duration // the length of leases
	holder  Holder        // the name that they are taken with

	// waits has room for one: of those who have nothing to do, only one waits for a job.
	waits chan struct{}
	acks  sharedAcks
	share share // of the turns, if there are several sources

	maxDeliver atomic.Int64
	asked      atomic.Int64 // when the settings were asked for, in nanoseconds
	unanswered atomic.Int32 // requests for them since the last answer
}

func (w *Worker) newSource(weighted WeightedQueue) *source {
	q := weighted.queue
	s := &source{
		Worker:  w,
		queue:   q,
		verb:    q.popVerb(),
		log:     w.o.Logger.With("queue", q.name),
		ackWait: w.o.AckWait,
		holder:  cmp.Or(w.o.Holder, DefaultHolder(q.client.nc)),
		waits:   make(chan struct{}, 1),
		share:   share{weight: float64(weighted.weight)},
	}
	if w.o.Max {
		s.verb = subjects.PopMax
	}
	return s
}

// leaseOptions are those of a lease of up to n jobs, 0 for one without batches.
func (s *source) leaseOptions(n int, more ...LeaseOption) subjects.PopOptions {
	return leaseOptions(n, append(more, AckWait(s.ackWait), s.holder))
}

// patience is how long to wait for the answer to an acknowledgement: so that there is time for
// another one before the lease is over, but not so short that a slow answer counts as lost. The job
// that comes with it would then be leased to nobody, and that delivery counts.
func (s *source) patience() time.Duration {
	return min(max(s.ackWait/3, lateReply), s.queue.client.timeout)
}

// do calls the Work.
func (s *source) do(h *heldJob) error {
	s.refreshSettings()
	ctx, done := h.limit(s.o.JobTimeout)
	defer done()
	job := &Job{Item: h.Item, Queue: s.queue.name, Deliveries: h.Deliveries, MaxDeliver: s.maxDeliver.Load()}
	err := s.work.callSafely(ctx, job)

	if err != nil && errors.Is(context.Cause(ctx), ErrTimedOut) {
		return timedOut(err)
	}
	return err
}
