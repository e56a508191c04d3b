package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// answerBatches waits for the batches that run has started, in order, and answers their requests.
func (l *lane) answerBatches() {
	for b := range l.started {
		results, err := b.pending.Wait()
		b.cancel()

		// Only the replies are still to be sent, so the next batch need not wait for this one.
		l.mu.Lock()
		b.durable = true
		l.mu.changed.Signal()
		l.mu.Unlock()

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
		case r.answered:
			l.d.requeueLate(r.Queue, ops, own)
		default:
			l.answerRequest(r, ops, own, now)
		}
	}

	// Only now is it known what the batch found for each line, and so when to look again.
	l.finishWaiters(b, results, nil)
	l.notifyFilled(b, results)
	wakeQueues(l.d, l.d.filledQueues(b.pending), b)
}

// answerRequest answers a request that does not wait, unless a later batch tries it again.
func (l *lane) answerRequest(r *Request, ops []fdbpq.Op, results []fdbpq.Result, now time.Time) {
	r.acked = r.acked || LeadingAcks(ops) > 0 && results[0].Err == nil

	left := toRetry(ops, results)
	if len(left) > 0 && !r.Each && l.runAgain(r, left) == nil {
		return
	}

	// The limit's own error would say that the request changed nothing.
	if r.acked {
		for i := range results {
			results[i].Err = asNothing(results[i].Err)
		}
	}
	r.Answered = now
	r.Replier.Answer(r, ops, results)
}

// notifyFilled calls Options.Filled for a durable batch, once for each queue.
func (l *lane) notifyFilled(b *batch, results []fdbpq.Result) {
	filled := l.d.options.Filled
	if filled == nil {
		return
	}

	l.notifications++
	for r, ops := range b.each() {
		own := results[:len(ops)]
		results = results[len(ops):]
		if r.Queue.notified == l.notifications {
			continue
		}

		fills := itemsFilled(ops) > 0 || freesPlace(own) || !nextDue(ops, own).IsZero()
		if fills || has(ops, fdbpq.OpConfigure) {
			r.Queue.notified = l.notifications
			filled(r.Queue)
		}
	}
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

// observeResults learns from a batch how large items are, and counts the items that came and went.
func (l *lane) observeResults(b *batch, results []fdbpq.Result) {
	largest, items := 0, false
	for r, ops := range b.each() {
		own := results[:len(ops)]
		results = results[len(ops):]
		countTraffic(r.Queue, ops, own)

		size, got := largestItem(r, ops, own)
		if got || r.Queue.itemSize.Load() > 0 {
			observeSize(&r.Queue.itemSize, size, got)
		}
		largest, items = max(largest, size), items || got
	}
	observeSize(&l.popSize, largest, items)
}

// largestItem returns the size of the largest item that a request pushed or got, and whether it got
// any.
func largestItem(r *Request, ops []fdbpq.Op, results []fdbpq.Result) (size int, got bool) {
	if len(ops) == 1 {
		size = r.Size
	}
	for i := range results {
		if results[i].Err == nil && returnsItem(ops[i].Kind) {
			got = true
			size = max(size, sizeOf(&results[i].Item.Message))
		} else if len(ops) > 1 { // the request is larger than each of its pushes
			size = max(size, sizeOf(&ops[i].Message))
		}
	}

	return size, got
}

// observeSize adjusts the expected size of an item: up to the largest message at once, down slowly.
// So a batch has no more pops than fdbpq.Batcher.LimitReturned allows.
func observeSize(expected *atomic.Int64, largest int, items bool) {
	size := expected.Load()
	if int64(largest) > size {
		expected.Store(int64(largest))
	} else if items {
		expected.Store(size - (size-int64(largest)+7)/8)
	}
}

// countTraffic counts the items that a request pushed, popped or settled.
func countTraffic(q *Queue, ops []fdbpq.Op, results []fdbpq.Result) {
	in, out := int64(0), int64(0)
	for i := range ops {
		if r := &results[i]; r.Err == nil && !r.Duplicate {
			put, took := itemsMoved(&ops[i], r)
			in, out = in+put, out+took
		}
	}

	if in > 0 {
		q.in.Add(in)
	}
	if out > 0 {
		q.out.Add(out)
	}
}

// itemsMoved returns how many items an operation that succeeded has pushed, and how many it has
// popped or settled. Purged, removed and redriven items do not count: nobody worked on them.
func itemsMoved(op *fdbpq.Op, r *fdbpq.Result) (in, out int64) {
	switch op.Kind {
	case fdbpq.OpPush:
		return 1, 0
	case fdbpq.OpPop, fdbpq.OpAck, fdbpq.OpTerm:
		return 0, 1
	}

	return 0, 0
}
