package dispatch

import (
	"context"
	"iter"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// batch holds requests that run in one transaction, and their operations in the same
// order. A waiter is in it as a request that refers to it.
type batch struct {
	requests []Request
	ops      []fdbpq.Op

	number   int64         // of the batches of its lane
	oldest   time.Time     // when the first of the requests arrived
	overdue  time.Duration // when the timers answer the first of them, since their epoch
	lines    []*line       // that have operations in it
	reserved int           // operations to come for lines
	bytes    int           // roughly, also of those
	many     *Queue        // of the last request for several items

	alone     bool // no request may join it
	silent    bool // has a push without a reply
	writes    bool
	pushes    bool
	nonPushes bool // has operations other than pushes
	durable   bool // or failed: only the replies are still to be sent

	pending *fdbpq.Pending
	cancel  context.CancelFunc
}

func (b *batch) add(r *Request, ops []fdbpq.Op) {
	b.requests = append(b.requests, *r)
	added := &b.requests[len(b.requests)-1]
	added.span, added.Pops = r.operations(ops), 0
	b.ops = appendPops(append(b.ops, ops...), ops[len(ops)-1], r.Pops-1)

	b.alone = b.alone || r.alone
	if len(b.requests) == 1 || r.Received.Before(b.oldest) {
		b.oldest = r.Received
	}

	for i := range ops {
		push := ops[i].Kind == fdbpq.OpPush
		b.pushes = b.pushes || push
		b.nonPushes = b.nonPushes || !push
		b.writes = b.writes || ops[i].Kind.Writes()
		b.silent = b.silent || push && r.Silent
	}
}

// addWaiter adds operations of a waiter.
func (b *batch) addWaiter(w *waiter, ops []fdbpq.Op, received time.Time) {
	r := Request{Queue: w.request.Queue, Received: received, span: len(ops), waiter: w}
	b.add(&r, ops)
}

// each returns the requests and their operations.
func (b *batch) each() iter.Seq2[*Request, []fdbpq.Op] {
	return func(yield func(*Request, []fdbpq.Op) bool) {
		at := 0
		for i := range b.requests {
			r := &b.requests[i]
			if !yield(r, b.ops[at:at+r.span]) {
				return
			}
			at += r.span
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
