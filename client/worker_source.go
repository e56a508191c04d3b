package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// source is a queue that a worker gets jobs from.
type source struct {
	*Worker
	queue   *handle
	verb    subjects.Verb // that leases
	log     *slog.Logger
	ackWait time.Duration // the length of leases

	// waits has room for one: of those who have nothing to do, only one waits for a job.
	waits chan struct{}
	acks  sharedAcks
}

func (w *Worker) newSource(q *handle) *source {
	s := &source{
		Worker:  w,
		queue:   q,
		verb:    q.popVerb(),
		log:     w.o.Logger.With("queue", q.name),
		ackWait: w.o.AckWait,
		waits:   make(chan struct{}, 1),
	}
	if w.o.Max {
		s.verb = subjects.PopMax
	}
	return s
}

// patience is how long to wait for the answer to an acknowledgement: so that there is time for
// another one before the lease is over, but not so short that a slow answer counts as lost. The job
// that comes with it would then be leased to nobody, and that delivery counts.
func (s *source) patience() time.Duration {
	return min(max(s.ackWait/3, lateReply), s.queue.client.timeout)
}

// findAckWait asks for the length of leases unless it is given.
func (s *source) findAckWait() error {
	if s.ackWait != 0 {
		return nil
	}
	s.ackWait = settings.DefaultLease

	unanswered := 0
	for p := new(pause); s.stopping.Err() == nil; p.wait(s.stopping) {
		ctx, cancel := context.WithTimeout(s.stopping, s.patience())
		set, err := s.queue.Settings(ctx)
		cancel()
		switch {
		case err == nil:
			s.ackWait = set.LeaseWait()
			return nil
		case isHopeless(err):
			return err
		case s.stopping.Err() != nil:
			return nil
		}
		s.log.Warn("cannot read the settings of the queue", "error", err)

		// NATS does not answer those who may not ask.
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNotSent) {
			unanswered++
		}
		if unanswered == 2 {
			s.log.Warn("takes the default length of leases, since the settings of the queue cannot be read: is it allowed to?", "ack_wait", s.ackWait)
			return nil
		}
	}
	return nil
}

// do calls the Work.
func (s *source) do(h *heldJob) error {
	ctx, done := h.limit(s.o.JobTimeout)
	defer done()
	err := s.work.callSafely(ctx, &Job{Item: h.Item, Queue: s.queue.name, Deliveries: h.Deliveries})

	if err != nil && errors.Is(context.Cause(ctx), ErrTimedOut) {
		return timedOut(err)
	}
	return err
}
