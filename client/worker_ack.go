package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// acknowledge acknowledges a job that is done by send, which is ackAndLease or ackOnly, maybe
// together with others. It returns the next job if it has leased one.
func (s *source) acknowledge(h *heldJob, send func([]*turn)) (next *heldJob) {
	t := &turn{heldJob: h}
	if _, ok := h.token(); s.o.Concurrency+s.o.Prefetch > 1 && ok {
		s.acks.share(t, s.queue.client.maxSharedAcks(), send)
	} else {
		send([]*turn{t})
	}

	if t.unacked {
		s.settle(h, t.unknown, h.Ack)
	}
	return t.next
}

// letGoAll stops extending the leases, and returns the turns, with their deliveries, whose leases
// are not known to be lost. Call it as late as possible, since a turn may have waited.
func (s *source) letGoAll(batch []*turn) (held []*turn, done []*Delivery) {
	for _, t := range batch {
		if t.letGo() {
			s.logLostBefore(t.heldJob, nil)
			continue
		}
		held, done = append(held, t), append(done, t.Delivery)
	}
	return held, done
}

// ackOnly acknowledges the jobs.
func (s *source) ackOnly(batch []*turn) {
	held, done := s.letGoAll(batch)
	ctx, cancel := context.WithTimeout(context.Background(), s.patience())
	defer cancel()

	for i, err := range s.queue.client.AckAll(ctx, done...) {
		switch t := held[i]; {
		case err == nil:
		case errors.Is(err, ErrLeaseLost):
			s.logLost(t.heldJob)
		default:
			t.unacked, t.unknown = true, errors.Is(err, ErrUnknownOutcome)
		}
	}
}

// ackAndLease makes one request that acknowledges the jobs and leases as many.
func (s *source) ackAndLease(batch []*turn) {
	if s.stopping.Err() != nil { // no more jobs are wanted
		s.ackOnly(batch)
		return
	}
	held, done := s.letGoAll(batch)
	if len(held) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), s.patience())
	defer cancel()
	began := time.Now() // the leases begin later
	next, err := ackNext(ctx, done)
	for i, d := range next {
		held[i].next = s.hold(d, began)
	}

	switch {
	case err == nil, len(next) > 0, errors.Is(err, ErrEmpty),
		errors.Is(err, ErrTooLarge) && !errors.Is(err, nats.ErrMaxPayload): // all are acknowledged
		return
	case errors.Is(err, ErrLeaseLost) && len(held) == 1:
		s.logLost(held[0].heldJob)
		return
	}

	// Few errors say that nothing was acknowledged. With others the lease of the next job may be all
	// that failed.
	unknown := !isAny(err, ErrLeaseLost, ErrBadRequest)
	for _, t := range held {
		t.unacked, t.unknown = true, unknown
	}
}
