package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// acknowledge acknowledges a job that is done, maybe together with others. With lease it also
// leases a job, and returns it if there was one.
func (s *source) acknowledge(h *heldJob, lease bool) (next *heldJob) {
	p := &pendingAck{heldJob: h, lease: lease}
	switch _, ok := h.token(); {
	case s.overdue.Err() != nil: // this is the last attempt
		if held, _ := s.letGoAll([]*pendingAck{p}); len(held) > 0 {
			s.settle(h, nil, false, h.ackOrFail)
		}
	case ok && s.o.Concurrency > 1:
		s.acks.share(p, s.queue.client.fittingPending, s.send)
	default:
		s.send([]*pendingAck{p})
	}

	if p.err != nil {
		s.settle(h, p.err, p.unknown, h.ackOrFail)
	}
	return p.next
}

// fittingPending returns how many of the acknowledgements go into one request.
func (c *Client) fittingPending(list []*pendingAck) int {
	return c.fittingAcks(len(list), func(i int) *Delivery { return list[i].Delivery })
}

// ackOrFail acknowledges a job on its own. If its result, or what it pushes, is refused, the job
// fails, as if its Work had: otherwise it would be done again and again, and nobody would know why.
func (h *heldJob) ackOrFail(ctx context.Context) error {
	err := h.Ack(ctx)
	r := &h.result
	if !r.given && len(r.next) == 0 || !isAny(err, ErrBadRequest, nats.ErrMaxPayload) {
		return err
	}

	text := fmt.Sprintf("the result of %d bytes was refused: %v", len(r.value), err)
	if len(r.next) > 0 {
		text = fmt.Sprintf("the result, or one of %d items to push, was refused: %v",
			len(r.next), err)
	}
	return h.failing(text, Backoff)(ctx)
}

// letGoAll stops extending the leases. It returns those of the batch whose leases are not certainly
// lost, and their deliveries. Call it as late as possible, because they may have waited.
func (s *source) letGoAll(batch []*pendingAck) (held []*pendingAck, done []*Delivery) {
	for _, p := range batch {
		p.stopExtending() // all at once: each waits for its last attempt to end
	}
	for _, p := range batch {
		if p.letGo() {
			s.logLostBefore(p.heldJob)
			continue
		}
		held, done = append(held, p), append(done, p.Delivery)
	}
	return held, done
}

// send acknowledges the jobs in one request, which leases one in the place of each that asks for
// it.
func (s *source) send(batch []*pendingAck) {
	held, done := s.letGoAll(batch)
	var asking []*pendingAck
	for _, p := range held {
		if p.lease && s.stopping.Err() == nil { // otherwise lease no more jobs
			asking = append(asking, p)
		}
	}

	ctx, cancel := s.attempt()
	defer cancel()
	if len(asking) > 0 {
		s.ackAndLease(ctx, held, done, asking)
	} else {
		s.ackOnly(ctx, held, done)
	}
}

// ackOnly acknowledges the jobs.
func (s *source) ackOnly(ctx context.Context, held []*pendingAck, done []*Delivery) {
	for i, err := range s.queue.client.AckAll(ctx, done...) {
		switch p := held[i]; {
		case err == nil:
		case errors.Is(err, ErrLeaseLost):
			s.logLost(p.heldJob)
		case errors.Is(err, ErrInternal): // of a request for this job alone
			s.noteUnsettled(p.heldJob, err, false)
		default:
			p.err, p.unknown = err, errors.Is(err, ErrUnknownOutcome)
		}
	}
}

// ackAndLease acknowledges the jobs and leases as many as ask for one.
func (s *source) ackAndLease(
	ctx context.Context, held []*pendingAck, done []*Delivery, asking []*pendingAck,
) {
	began := time.Now() // leases begin later
	next, err := ackNext(ctx, done, len(asking), s.o.AckWait)
	for i, d := range next {
		asking[i].next = s.hold(d, began)
	}

	switch {
	case err == nil, len(next) > 0, errors.Is(err, ErrEmpty),
		errors.Is(err, ErrTooLarge) && !errors.Is(err, nats.ErrMaxPayload): // all are acknowledged
		return
	case errors.Is(err, ErrLeaseLost) && len(held) == 1:
		s.logLost(held[0].heldJob)
		return
	}

	// Few errors say that nothing was acknowledged. After others, maybe only the lease of the next
	// job failed.
	unknown := !isAny(err, ErrLeaseLost, ErrBadRequest)
	for _, p := range held {
		p.err, p.unknown = err, unknown
	}
}
