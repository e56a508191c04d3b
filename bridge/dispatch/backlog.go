package dispatch

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// backlog is a queue of requests and, in the same order, of their operations.
type backlog struct {
	requests fifo[Request]
	ops      fifo[fdbpq.Op]

	nonPushes int // of ops
}

// len is the number of requests.
func (w *backlog) len() int { return w.requests.len() }

// operations is the number of operations.
func (w *backlog) operations() int { return w.ops.len() }

// push adds a copy of the request. The original may be one of a batch, which still needs its span.
func (w *backlog) push(r *Request, ops []fdbpq.Op) {
	queued := *r
	queued.span = len(ops)
	w.requests.push(queued)
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
	w.ops.drop(r.span)
	w.requests.drop(1)
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
