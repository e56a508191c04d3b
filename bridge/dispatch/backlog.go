package dispatch

import (
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// backlog is a queue of requests and, in the same order, of their operations.
type backlog struct {
	requests fifo[Request]
	ops      fifo[fdbpq.Op]

	nonPushes  int // of ops
	operations int // that the requests will have in their batches

	latest time.Time // the latest turnBy of the requests
	mixed  bool      // some are to have their turn clearly before others in front of them
}

// inOrder is how much earlier than one in front of it a request may be to have its turn, as it is
// when several are submitted at a time.
const inOrder = 10 * time.Millisecond

// len is the number of requests.
func (w *backlog) len() int { return w.requests.len() }

// push adds a copy of the request. The original may be one of a batch, which still needs its span,
// or of a waiter that has ended.
func (w *backlog) push(r *Request, ops []fdbpq.Op) {
	queued := *r
	queued.span, queued.waiter = len(ops), nil
	w.requests.push(queued)
	w.operations += r.operations(ops)

	if r.turnBy.Add(inOrder).Before(w.latest) {
		w.mixed = true
	}
	if r.turnBy.After(w.latest) {
		w.latest = r.turnBy
	}

	for i := range ops {
		w.ops.push(ops[i])
		if ops[i].Kind != fdbpq.OpPush {
			w.nonPushes++
		}
	}
}

// first returns the request that has waited longest and its operations, or nil if there
// is none. They are valid until the next push or pop.
func (w *backlog) first() (*Request, []fdbpq.Op) {
	if w.requests.len() == 0 {
		return nil, nil
	}
	r := &w.requests.items[w.requests.head]
	return r, w.ops.items[w.ops.head : w.ops.head+r.span]
}

// pop removes the request that first returns.
func (w *backlog) pop() {
	r, ops := w.first()
	for i := range ops {
		if ops[i].Kind != fdbpq.OpPush {
			w.nonPushes--
		}
	}
	w.operations -= r.operations(ops)
	w.ops.drop(r.span)
	w.requests.drop(1)
	if w.len() == 0 {
		w.latest, w.mixed = time.Time{}, false
	}
}

// each returns the requests.
func (w *backlog) each() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		for i := w.requests.head; i < len(w.requests.items); i++ {
			if !yield(&w.requests.items[i]) {
				return
			}
		}
	}
}

// takeLate removes and returns the requests that should have had their turn by now. Unless all is
// set, it may leave some that have others in front of them.
func (w *backlog) takeLate(now time.Time, all bool) (late []lateRequest) {
	take := func() {
		r, ops := w.first()
		late = append(late, lateRequest{*r, slices.Clone(ops)})
		w.pop()
	}

	for w.len() > 0 && !w.requests.items[w.requests.head].turnBy.After(now) {
		take()
	}

	if !all || !w.mixed || w.firstTurn().After(now) {
		return late
	}

	// Some are behind others that still have time.
	var left backlog
	for w.len() > 0 {
		if r, ops := w.first(); r.turnBy.After(now) {
			left.push(r, ops)
			w.pop()
		} else {
			take()
		}
	}
	*w = left
	return late
}

// lateRequest is a request that was removed, with its operations.
type lateRequest struct {
	Request
	ops []fdbpq.Op
}

// firstTurn returns by when the first of all requests is to have its turn. The backlog must not be
// empty.
func (w *backlog) firstTurn() time.Time {
	requests := w.requests.items[w.requests.head:]
	at := requests[0].turnBy
	if w.mixed {
		for i := range requests {
			if requests[i].turnBy.Before(at) {
				at = requests[i].turnBy
			}
		}
	}
	return at
}

// fifo is a slice that grows at the end and shrinks at the front.
type fifo[T any] struct {
	items []T
	head  int // index of the first item left
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

// push appends an item. It drops the consumed front once that exceeds half of the
// slice, so that a queue that is never empty does not grow without bound.
func (f *fifo[T]) push(item T) {
	if n := len(f.items); n == cap(f.items) && f.head > n/2 {
		f.items = slices.Delete(f.items, 0, f.head)
		f.head = 0
	}
	f.items = append(f.items, item)
}

// drop removes n items from the front, and clears them to free what they refer to.
func (f *fifo[T]) drop(n int) {
	clear(f.items[f.head : f.head+n])
	f.head += n
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}
