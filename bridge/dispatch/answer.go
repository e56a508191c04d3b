package dispatch

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// answerBatches waits for the batches that run has started, in order, and answers their
// requests.
func (l *lane) answerBatches() {
	for b := range l.started {
		results, err := b.pending.Wait()
		b.cancel()
		l.setDurable(b)
		if err == nil {
			l.answerBatch(b, results)
		} else {
			l.failBatch(b, err)
		}
		l.d.noteBatch(b.pending)
		l.finishBatch(b)
		l.batcher.Reuse(results)
	}
}

// setDurable records that only the replies of the batch are still to be sent.
func (l *lane) setDurable(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.durable = true
	l.mu.changed.Signal()
}

// answerBatch answers the requests of a batch that is durable.
func (l *lane) answerBatch(b *batch, results []fdbpq.Result) {
	l.d.options.BatchDone(len(b.ops))
	if b.pushes && l.d.health.refusesPushes.Load() {
		l.d.health.refusesPushes.Store(false)
	}

	l.calling.Lock()
	defer l.calling.Unlock()
	now := time.Now()
	l.observeResults(b, results)
	rest := results
	for r, ops := range b.each() {
		own := rest[:len(ops)]
		rest = rest[len(ops):]

		switch {
		case r.waiter != nil:
			l.applyResults(r.waiter, ops, own, now)
		case r.answered: // by the timers
			l.d.requeueLate(r.Queue, ops, own)
		default:
			l.answerRequest(r, ops, own, now)
		}
	}

	// The lines come last: what the batch found for them says when they are looked at again.
	l.finishWaiters(b, results, nil)
	l.tellFilled(b, results)
	wakeQueues(l.d, l.d.filledQueues(b.pending), b)
}

// answerRequest answers a request that does not wait, unless a later batch tries it again.
func (l *lane) answerRequest(r *Request, ops []fdbpq.Op, results []fdbpq.Result, now time.Time) {
	r.acked = r.acked || LeadingAcks(ops) > 0 && results[0].Err == nil

	left := toRetry(ops, results)
	if len(left) > 0 && !r.Each && !l.endsWithoutRoom(r, results, now) && l.runAgain(r, left) == nil {
		return
	}

	if r.acked {
		for i := range results {
			results[i].Err = asNothing(results[i].Err)
		}
	}
	r.Answered = now
	r.Replier.Answer(r, ops, results)
}

// endsWithoutRoom reports whether a request for which no batch had room ends with what is known so
// far, because its time is nearly up: there is nothing, or no place.
func (l *lane) endsWithoutRoom(r *Request, results []fdbpq.Result, now time.Time) bool {
	last := results[len(results)-1].Err
	known := errors.Is(last, fdbpq.ErrEmpty) || errors.Is(last, fdbpq.ErrMaxLeased) || errors.Is(last, fdbpq.ErrFull)
	return known && now.Sub(r.Received) >= l.d.options.RequestTimeout*3/4
}

// failBatch fails the requests of a batch that was not run or whose outcome is unknown.
func (l *lane) failBatch(b *batch, err error) {
	if b.writes {
		l.d.health.noteFailure(err)
	}

	l.calling.Lock()
	defer l.calling.Unlock()
	if kv.MaybeCommitted(err) {
		l.setUnsettled(b)
	}
	err = batchError(err)
	l.d.options.Warn("a batch failed", "requests", len(b.requests), "error", err)

	// A store that is full refuses pushes, and with them the rest of their batch.
	refused := b.pushes && errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome)
	if refused {
		l.d.health.refusesPushes.Store(true)
	}
	apart := refused && b.nonPushes
	unknown := errors.Is(err, ErrUnknownOutcome)

	for r, ops := range b.each() {
		w := r.waiter
		if r.answered || w != nil && w.answered {
			continue // it was answered
		}
		pops := 0
		if w != nil {
			doubtful := unknown && w.leases() // it may have an item, which nobody puts back
			if w.retries() && (!w.endsWhenEmpty() || apart) && !doubtful {
				continue // it waits on: one that should end looks again without pushes
			}
			w.answered = true // nobody knows of it yet, so it may be requeued as a new one
			r, ops, pops = &w.request, w.rest(), w.wanted
		}

		if apart && !has(ops, fdbpq.OpPush) {
			again := *r
			again.Pops = pops
			if l.runAgain(&again, ops) == nil {
				continue // to be run without pushes: see takeBatch
			}
		}
		r.fail(ops, err)
	}

	l.finishWaiters(b, nil, err)
	if apart {
		l.retryLines(b)
	}
	wakeQueues(l.d, l.d.filledQueues(b.pending), b)
}

// setUnsettled records that the outcome of the batch is unknown; nil is one of before.
func (l *lane) setUnsettled(b *batch) {
	var filled []*Queue
	if b != nil {
		filled = l.d.filledQueues(b.pending)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.unsettled = true
	if b != nil {
		for i := range b.requests {
			l.mu.doubtful = append(l.mu.doubtful, b.requests[i].Queue)
		}
		l.mu.doubtful = append(l.mu.doubtful, filled...)
	}
	l.mu.changed.Signal()
}

// finishBatch ends the batch and frees what it held.
func (l *lane) finishBatch(b *batch) {
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
