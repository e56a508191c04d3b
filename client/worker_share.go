package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// maxUnderWay is the most shared requests under way: while the store syncs one, the next is on its
// way. With only one, a single worker is slower than with a request for each job; more would save
// fewer messages.
const maxUnderWay = 2

// share returns once send has sent a turn, maybe together with others, as many as fit into one
// request. While enough requests are under way, turns wait. Then the first of them sends them all.
func (a *sharedAcks) share(t *turn, fitting func([]*turn) int, send func([]*turn)) {
	batch := []*turn{t}

	a.mu.Lock()
	if a.busy >= maxUnderWay {
		t.batch = make(chan []*turn, 1)
		a.waiting = append(a.waiting, t)
		a.mu.Unlock()
		if batch = <-t.batch; batch == nil {
			return // another turn has sent this one
		}
	} else {
		a.busy++
		a.mu.Unlock()
	}

	// The next request starts when this one has its reply. It also starts when this one is slow,
	// because a bridge that is gone must not hold up all others.
	startNext := sync.OnceFunc(func() { a.startNext(fitting) })
	slow := time.AfterFunc(a.slow, startNext)
	send(batch)
	slow.Stop()

	for _, other := range batch[1:] {
		close(other.batch)
	}

	// Their next jobs may be short: let them end in time for the next request.
	runtime.Gosched()
	startNext()
}

// startNext has the first waiting turn send as many of them as fit, in place of a request that has
// its reply or is slow.
func (a *sharedAcks) startNext(fitting func([]*turn) int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	n := fitting(a.waiting)
	if n == 0 {
		a.busy--
		return
	}
	a.waiting[0].batch <- a.waiting[:n:n]
	a.waiting = a.waiting[n:]
}

// acknowledge acknowledges a job that is done, maybe together with others. With lease it also
// leases a job, and returns it if there was one.
func (s *source) acknowledge(h *heldJob, lease bool) (next *heldJob) {
	t := &turn{heldJob: h, lease: lease}
	switch _, ok := h.token(); {
	case s.overdue.Err() != nil: // this is the last attempt
		if held, _ := s.letGoAll([]*turn{t}); len(held) > 0 {
			s.settle(h, nil, false, h.ackOrFail)
		}
	case ok && s.o.Concurrency > 1:
		s.acks.share(t, s.queue.client.fittingTurns, s.send)
	default:
		s.send([]*turn{t})
	}

	if t.err != nil {
		s.settle(h, t.err, t.unknown, h.ackOrFail)
	}
	return t.next
}

// fittingTurns returns how many of the turns go into one request.
func (c *Client) fittingTurns(list []*turn) int {
	return c.fittingAcks(len(list), func(i int) *Delivery { return list[i].Delivery })
}

// ackOrFail acknowledges a job on its own. If its result, or what it pushes, is refused, the job
// fails, as if its Work had: otherwise it would be done again and again, and nobody would know why.
func (h *heldJob) ackOrFail(ctx context.Context) error {
	err := h.Ack(ctx)
	r := &h.result
	if !r.given && r.pushes == 0 || !isAny(err, ErrBadRequest, nats.ErrMaxPayload) {
		return err
	}

	text := fmt.Sprintf("the result of %d bytes was refused: %v", len(r.value), err)
	if r.pushes > 0 {
		text = fmt.Sprintf("the result, or one of %d items to push, was refused: %v", r.pushes, err)
	}
	return h.failing(text, Backoff)(ctx)
}

// letGoAll stops extending the leases. It returns the turns whose leases are not certainly lost,
// and their deliveries. Call it as late as possible, because turns may have waited.
func (s *source) letGoAll(batch []*turn) (held []*turn, done []*Delivery) {
	for _, t := range batch {
		t.stopExtending() // all at once: each waits for its last attempt to end
	}
	for _, t := range batch {
		if t.letGo() {
			s.logLostBefore(t.heldJob)
			continue
		}
		held, done = append(held, t), append(done, t.Delivery)
	}
	return held, done
}

// send acknowledges the jobs in one request, which leases one for each turn that asks for it.
func (s *source) send(batch []*turn) {
	held, done := s.letGoAll(batch)
	var asking []*turn
	for _, t := range held {
		if t.lease && s.stopping.Err() == nil { // otherwise lease no more jobs
			asking = append(asking, t)
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
func (s *source) ackOnly(ctx context.Context, held []*turn, done []*Delivery) {
	for i, err := range s.queue.client.AckAll(ctx, done...) {
		switch t := held[i]; {
		case err == nil:
		case errors.Is(err, ErrLeaseLost):
			s.logLost(t.heldJob)
		default:
			t.err, t.unknown = err, errors.Is(err, ErrUnknownOutcome)
		}
	}
}

// ackAndLease acknowledges the jobs and leases as many as ask for one.
func (s *source) ackAndLease(ctx context.Context, held []*turn, done []*Delivery, asking []*turn) {
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
	for _, t := range held {
		t.err, t.unknown = err, unknown
	}
}
