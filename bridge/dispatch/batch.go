package dispatch

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// batch holds requests that run in one transaction, and their operations in the same order. A
// waiter is in it as a request that refers to it.
type batch struct {
	requests []Request
	ops      []fdbpq.Op

	look     int64     // its number by lane.mu.clock
	oldest   time.Time // when the first of the requests arrived
	lines    []*line   // those with operations in the batch
	reserved int       // operations that addPopsLocked will add for lines
	bytes    int       // estimate, reserved operations included

	exclusive bool // no request may join it
	silent    bool // has a push without a reply
	purges    bool // has only purges, and pops of lines
	writes    bool // has an operation that writes
	pushes    bool // has an operation that makes the store larger
	nonPushes bool // has operations other than pushes
	durable   bool // durable or failed: only the replies are still to be sent

	pending *fdbpq.Pending
	cancel  context.CancelFunc
}

func (b *batch) add(r *Request, ops []fdbpq.Op) {
	b.requests = append(b.requests, *r)
	added := &b.requests[len(b.requests)-1]
	added.span, added.Pops = r.operations(ops), 0
	b.ops = appendPops(append(b.ops, ops...), ops[len(ops)-1], r.Pops-1)

	b.exclusive = b.exclusive || r.exclusive
	if len(b.requests) == 1 || r.Received.Before(b.oldest) {
		b.oldest = r.Received
	}

	for i := range ops {
		push := pushes(&ops[i])
		b.pushes = b.pushes || push
		b.nonPushes = b.nonPushes || ops[i].Kind != fdbpq.OpPush
		b.writes = b.writes || ops[i].Kind.Writes()
		b.silent = b.silent || push && r.Silent
		b.purges = b.purges || ops[i].Kind == fdbpq.OpPurge
	}
}

// addWaiter adds operations of a waiter.
func (b *batch) addWaiter(w *waiter, ops []fdbpq.Op, received time.Time) {
	r := Request{Queue: w.request.Queue, Received: received, span: len(ops), waiter: w}
	b.add(&r, ops)
}

// requestOps is a request with its operations and, once they have run, their results.
type requestOps struct {
	*Request
	ops     []fdbpq.Op
	results []fdbpq.Result
}

// each yields each request of the batch. results are nil, or one for each operation.
func (b *batch) each(results []fdbpq.Result) iter.Seq[requestOps] {
	return func(yield func(requestOps) bool) {
		ops := b.ops
		for i := range b.requests {
			r := &b.requests[i]
			n := min(r.span, len(results))
			if !yield(requestOps{r, ops[:r.span], results[:n]}) {
				return
			}
			ops, results = ops[r.span:], results[n:]
		}
	}
}

// empty removes all requests and frees what they refer to.
func (b *batch) empty() {
	clear(b.requests)
	clear(b.ops)
	clear(b.lines)
	b.requests, b.ops, b.lines = b.requests[:0], b.ops[:0], b.lines[:0]
}

// backlog is a queue of requests, and of their operations in the same order.
type backlog struct {
	requests fifo[Request]
	ops      fifo[fdbpq.Op]

	nonPushes  int // operations other than pushes
	lazy       int // operations of lazy requests
	operations int // that the requests will have in their batches
}

// len is the number of requests.
func (w *backlog) len() int { return w.requests.len() }

// push appends a copy of the request. The original keeps its span and waiter: it may still be in a
// batch, or belong to a waiter that has ended.
func (w *backlog) push(r *Request, ops []fdbpq.Op) {
	queued := *r
	queued.span, queued.waiter = len(ops), nil
	w.requests.push(queued)

	w.operations += r.operations(ops)
	if r.Lazy {
		w.lazy += len(ops)
	}

	for i := range ops {
		w.ops.push(ops[i])
		if ops[i].Kind != fdbpq.OpPush {
			w.nonPushes++
		}
	}
}

// first returns the request that has waited longest and its operations, nil if there is none. They
// are valid until the next push or pop.
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

	if r.Lazy {
		w.lazy -= len(ops)
	}
	w.operations -= r.operations(ops)

	w.ops.drop(r.span)
	w.requests.drop(1)
}

// fifo is a slice that grows at the end and shrinks at the front.
type fifo[T any] struct {
	items []T
	head  int // index of the first item left
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

// push appends an item. It drops the consumed front once that exceeds half of the slice, so that a
// queue that is never empty does not grow without bound.
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
