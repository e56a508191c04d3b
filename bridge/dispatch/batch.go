package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
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

// appendPops appends n operations like the pop or lease before them.
func appendPops(ops []fdbpq.Op, pop fdbpq.Op, n int) []fdbpq.Op {
	pop.Follows = true
	for range n {
		ops = append(ops, pop)
	}
	return ops
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

func returnsItem(k fdbpq.OpKind) bool {
	return k == fdbpq.OpPop || k == fdbpq.OpPeek || k == fdbpq.OpLease || k == fdbpq.OpGet
}

// takesItem reports whether the operation takes items out of reach of others.
func takesItem(k fdbpq.OpKind) bool { return k == fdbpq.OpPop || k == fdbpq.OpLease }

// movesItem reports whether the operation reads or writes an item that the request does not
// contain.
func movesItem(k fdbpq.OpKind) bool {
	return returnsItem(k) || k == fdbpq.OpNak || k == fdbpq.OpTerm || k == fdbpq.OpExtend || k == fdbpq.OpMove
}

// LeadingAcks returns how many acknowledgements the operations of a request begin with. They are tied to each
// other, so all of them have failed if the first has.
func LeadingAcks(ops []fdbpq.Op) (n int) {
	for n < len(ops) && ops[n].Kind == fdbpq.OpAck {
		n++
	}
	return n
}

// has reports whether one of the operations is of the kind.
func has(ops []fdbpq.Op, kind fdbpq.OpKind) bool {
	return slices.ContainsFunc(ops, func(op fdbpq.Op) bool { return op.Kind == kind })
}

// answer waits for the batches that run has started, in order, and answers their
// requests.
func (l *lane) answer() {
	for b := range l.started {
		results, err := b.pending.Wait()
		b.cancel()
		l.setDurable(b)
		if err == nil {
			l.succeed(b, results)
		} else {
			l.fail(b, err)
		}
		l.d.ended(b.pending)
		l.finish(b)
	}
}

// setDurable records that only the replies of the batch are still to be sent.
func (l *lane) setDurable(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.durable = true
	l.mu.changed.Signal()
}

// succeed answers the requests of a batch that is durable.
func (l *lane) succeed(b *batch, results []fdbpq.Result) {
	l.d.options.BatchDone(len(b.ops))
	if b.pushes && l.d.health.refusesPushes.Load() {
		l.d.health.refusesPushes.Store(false)
	}
	l.calling.Lock()
	defer l.calling.Unlock()
	now := time.Now()
	largest, items := 0, false
	rest := results
	for r, ops := range b.each() {
		own := rest[:len(ops)]
		rest = rest[len(ops):]
		if len(ops) == 1 {
			largest = max(largest, r.Size)
		}
		for i := range own {
			if own[i].Err == nil && returnsItem(ops[i].Kind) {
				items = true
				largest = max(largest, sizeOf(&own[i].Item.Message))
			} else if len(ops) > 1 { // the request is larger than each of its pushes
				largest = max(largest, sizeOf(&ops[i].Message))
			}
		}
		switch {
		case r.waiter != nil:
			l.applyResults(r.waiter, ops, own, now)
			continue
		case r.answered:
			l.giveBack(r.Queue, ops, own)
			continue
		}
		if own[0].Progress.Next != "" {
			l.goOn(r, ops, own[0].Progress, now)
			continue
		}
		if own[0].Err != nil {
			own[0].Err = partly(ops, own[0].Err)
		}
		r.acked = r.acked || LeadingAcks(ops) > 0 && own[0].Err == nil
		if left := notYet(ops, own); len(left) > 0 && !l.endsSoFar(r, own, now) && l.requeue(r, left) == nil {
			continue
		}
		if r.acked {
			for i := range own {
				own[i].Err = withoutPlace(own[i].Err)
			}
		}
		r.Answered = now
		r.Replier.Answer(r, ops, own)
	}
	l.observe(largest, items)
	l.finishWaiters(b, results, nil)
	l.ring(b, results)
	l.wakeFilled(b)
}

// endsSoFar reports whether a request for which no batch had room ends with what is known so far, because its time is
// nearly up: there is nothing, or no place.
func (l *lane) endsSoFar(r *Request, results []fdbpq.Result, now time.Time) bool {
	last := results[len(results)-1].Err
	known := errors.Is(last, fdbpq.ErrEmpty) || errors.Is(last, fdbpq.ErrMaxLeased) || errors.Is(last, fdbpq.ErrFull)
	return known && now.Sub(r.Received) >= l.d.options.RequestTimeout*3/4
}

// goOn has the next batch go on with an operation that takes several transactions. It leaves the last of
// them half of the time, so that the answer can say exactly how much is done.
func (l *lane) goOn(r *Request, ops []fdbpq.Op, so fdbpq.Progress, now time.Time) {
	ops[0].Progress = so
	err := errTakesLong
	if now.Sub(r.Received) < l.d.options.RequestTimeout/2 {
		err = l.requeue(r, ops)
	}
	if err != nil {
		r.fail(ops, err)
	}
}

var errTakesLong = fmt.Errorf("%w: there is more than there was time for", ErrUnavailable)

// partly adds to the error of a request how much of it earlier batches have done.
func partly(ops []fdbpq.Op, err error) error {
	if len(ops) == 0 || ops[0].Progress.Done == 0 {
		return err
	}
	return fmt.Errorf("%w; %d items are done, ask again for the rest", err, ops[0].Progress.Done)
}

// notYet returns the operations that are to be tried again with another batch, because this one had
// no room for them. Acknowledgements before them are done.
func notYet(ops []fdbpq.Op, results []fdbpq.Result) (left []fdbpq.Op) {
	if acks := LeadingAcks(ops); 0 < acks && acks < len(ops) && results[0].Err == nil && canWait(results[acks].Err) {
		left = ops[acks:]
		left[0].Follows = false
		for i := range left {
			left[i].Lease = cmp.Or(left[i].Lease, results[0].LeaseLength())
		}
		return left
	}
	if canWait(results[0].Err) {
		return ops
	}
	return nil
}

// canWait reports whether an operation failed with an error that goes away by itself.
func canWait(err error) bool { return errors.Is(err, fdbpq.ErrNoRoom) }

// sizeOf returns the approximate size of a message in bytes.
func sizeOf(m *fdbpq.Message) int {
	n := len(m.Value)
	for name, values := range m.Headers {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// fail fails the requests of a batch that was not run or whose outcome is unknown.
func (l *lane) fail(b *batch, err error) {
	if b.writes {
		l.d.health.note(err)
	}
	l.calling.Lock()
	defer l.calling.Unlock()
	switch {
	case kv.MaybeCommitted(err):
		err = fmt.Errorf("%w: a push may or may not be in the queue, and what a pop took is put back: %w", ErrUnknownOutcome, err)
		l.setUnsettled(b)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: the store did not answer in time, the request was not run: try again", ErrUnavailable)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%w: the service is shutting down, the request was not run: try again", ErrUnavailable)
	}
	l.d.options.Warn("a batch failed", "requests", len(b.requests), "error", err)
	// A store that is full refuses pushes, and with them the rest of their batch.
	refused := b.pushes && errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome)
	if refused {
		l.d.health.refusesPushes.Store(true)
	}
	apart := refused && b.nonPushes
	for r, ops := range b.each() {
		w := r.waiter
		if r.answered || w != nil && w.answered {
			continue // it was answered
		}
		pops := 0
		if w != nil {
			if w.state.hasParked() && (!w.ends() || apart) {
				continue // it waits on: one that should end looks again without pushes
			}
			w.answered = true // nobody knows of it yet, so it may be requeued as a new one
			r, ops, pops = &w.request, w.rest(), w.wanted
		}
		if apart && !has(ops, fdbpq.OpPush) {
			again := *r
			again.Pops = pops
			if l.requeue(&again, ops) == nil {
				continue // to be run without pushes: see take
			}
		}
		r.fail(ops, err)
	}
	l.finishWaiters(b, nil, err)
	if apart {
		l.wakeLines(b)
	}
	l.wakeFilled(b)
}

// fail passes the error to the Replier.
func (r *Request) fail(ops []fdbpq.Op, err error) {
	r.Answered = time.Now()
	r.Replier.Fail(r, ops, partly(ops, err))
}

// finish ends the batch and frees what it held.
func (l *lane) finish(b *batch) {
	requests, bytes := 0, 0
	for i := range b.requests {
		if r := &b.requests[i]; r.waiter == nil {
			requests++
			bytes += r.Size
			l.d.releaseWaiter(r)
		}
	}
	l.d.load.release(requests, bytes)
	l.mu.Lock()
	if b.silent {
		l.mu.silent--
	}
	if l.mu.newest == b {
		l.mu.newest = nil
	}
	l.mu.changed.Signal()
	l.mu.Unlock()
	b.empty() // no longer the newest, so nothing else reads it
	*b = batch{requests: b.requests, ops: b.ops, lines: b.lines}
	l.spare.Put(b)
}
