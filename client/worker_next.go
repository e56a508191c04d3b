package client

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// turn is a job that is done, until it is acknowledged and the next one may have its place.
type turn struct {
	*lease
	next *lease // nil if there is none for it
	// alone: the job is still to be acknowledged, by itself. unknown: it may be already.
	alone, unknown bool

	lead chan []*turn // for who waits: the turns to lead, of which it is the first, or closed once it had its turn
}

// sharedAcks has few requests at a time acknowledge the jobs that have ended meanwhile.
type sharedAcks struct {
	mu      sync.Mutex
	busy    int     // requests under way that are not slow, up to maxUnderWay
	waiting []*turn // for the next request
	refused bool    // a bridge does not know such requests

	slow time.Duration // after which a request is slow
}

// acknowledge has together, which is nextOf or ackOf, acknowledge a job that is done. It returns the next one if it has
// leased one.
func (w *Worker) acknowledge(l *lease, together func([]*turn)) (next *lease) {
	t := &turn{lease: l}
	if _, ok := l.token(); w.o.Concurrency+w.o.Prefetch > 1 && ok {
		w.share(t, together)
	} else {
		together([]*turn{t})
	}
	if t.alone {
		w.settle(l, t.unknown, l.Ack)
	}
	return t.next
}

// maxUnderWay is how many shared requests are under way at most: while the store syncs one, the next is on its
// way. With a single one a worker alone is slower than with a request for each job, and more save fewer messages.
const maxUnderWay = 2

// share calls together for a turn, with others that come while enough requests are under way.
func (w *Worker) share(t *turn, together func([]*turn)) {
	s, list := &w.shared, []*turn{t}
	s.mu.Lock()
	switch {
	case s.refused:
		s.mu.Unlock()
		together(list)
		return
	case s.busy >= maxUnderWay:
		t.lead = make(chan []*turn, 1)
		s.waiting = append(s.waiting, t)
		s.mu.Unlock()
		if list = <-t.lead; list == nil {
			return
		}
	default:
		s.busy++
		s.mu.Unlock()
	}
	handOver := sync.OnceFunc(func() { s.handOver(w.queue.client.mostTogether()) })
	slow := time.AfterFunc(s.slow, handOver) // a bridge that is gone must not hold up all others
	together(list)
	slow.Stop()
	for _, other := range list[1:] {
		close(other.lead)
	}
	runtime.Gosched() // the jobs that they get may be short, and end in time for the next request
	handOver()
}

// handOver lets up to n of those who wait make the next request in place of one that has its answer, or has waited for
// long enough.
func (s *sharedAcks) handOver(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.waiting))
	if s.refused { // they go on by themselves
		n = min(n, 1)
	}
	if n == 0 {
		s.busy--
	} else {
		s.waiting[0].lead <- s.waiting[:n:n]
		s.waiting = s.waiting[n:]
	}
}

// release stops extending the leases, and returns the turns and deliveries of those that are not known to be lost. It is
// called as late as possible, since a turn may have waited.
func (w *Worker) release(list []*turn) (held []*turn, done []*Delivery) {
	for _, t := range list {
		if t.release() {
			w.noteLostBefore(t.lease, nil)
			continue
		}
		held, done = append(held, t), append(done, t.Delivery)
	}
	return held, done
}

// ackOf acknowledges the jobs.
func (w *Worker) ackOf(list []*turn) {
	held, done := w.release(list)
	ctx, cancel := context.WithTimeout(context.Background(), w.patience())
	defer cancel()
	for i, err := range w.queue.client.AckAll(ctx, done...) {
		switch t := held[i]; {
		case err == nil:
		case errors.Is(err, ErrLeaseLost):
			w.noteLost(t.lease)
		default:
			t.alone, t.unknown = true, errors.Is(err, ErrUnknownOutcome)
		}
	}
}

// nextOf makes one request that acknowledges the jobs and leases as many.
func (w *Worker) nextOf(list []*turn) {
	if w.stopping.Err() != nil { // nothing more is wanted
		w.ackOf(list)
		return
	}
	held, done := w.release(list)
	if len(held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.patience())
	defer cancel()
	began := time.Now()
	next, err := nextTogether(ctx, done)
	for i, d := range next {
		held[i].next = w.begin(d, began)
	}
	switch {
	case err == nil, len(next) > 0, errors.Is(err, ErrEmpty), errors.Is(err, ErrTooLarge) && !errors.Is(err, nats.ErrMaxPayload): // acknowledged
		return
	case errors.Is(err, ErrLeaseLost) && len(held) == 1:
		w.noteLost(held[0].lease)
		return
	case errors.Is(err, ErrBadRequest) && len(held) > 1:
		w.shared.mu.Lock()
		w.shared.refused = true
		w.shared.mu.Unlock()
		w.log.Warn("acknowledges each job by itself from now on: a bridge of an earlier version does not take several in one request", "error", err)
	}
	// Few errors say that nothing was acknowledged: what failed may be the lease, also with
	// ErrOverloaded from a bridge of an earlier version, if max_leased was lowered.
	unknown := !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrBadRequest)
	for _, t := range held {
		t.alone, t.unknown = true, unknown
	}
}

// nextTogether acknowledges deliveries of one queue, all or none, and leases up to as many items.
func nextTogether(ctx context.Context, done []*Delivery) (next []*Delivery, err error) {
	first := done[0]
	a := subjects.Ack{Kind: subjects.AckNext}
	if len(done) > 1 {
		a.Next.Batch, a.Also = len(done), tokens(done[1:])
	}
	err = first.queue.client.fetch(ctx, first.nextOf(a), a.Next, func(reply *nats.Msg) error {
		d, err := first.queue.delivery(reply)
		if err == nil {
			next = append(next, d)
		}
		return err
	})
	return next, err
}
