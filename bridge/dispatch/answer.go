package dispatch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// answerBatch answers the requests of a batch that is durable.
func (l *lane) answerBatch(b *batch, results []fdbpq.Result) {
	l.d.options.BatchDone(len(b.ops))
	if b.pushes {
		l.d.health.notePushes(b.ops, results)
	}

	l.calling.Lock()
	defer l.calling.Unlock()

	now := time.Now()
	l.countBatch(b, results)

	for p := range b.each(results) {
		l.observeSizes(p)

		// If the process stood still, this may come before the timers do, and long after the client
		// has given up.
		if TakesItem(p.ops) {
			l.endLate(p, l.timers.since(now))
		}

		switch {
		case p.waiter != nil:
			l.applyResults(p.waiter, p.ops, p.results, now)
		case p.answered:
			l.d.requeueLate(p.Queue, p.ops, p.results)
		default:
			l.answerRequest(p.Request, p.ops, p.results, now)
		}
	}

	// Only now is it known what the batch found for each line, and so when to look again.
	l.finishWaiters(b, results, nil)
	if l.d.options.Filled != nil {
		l.notifyFilled(b, results)
	}
	wakeQueues(l.d, l.d.filledQueues(b.pending), b)
	l.d.tellEnded(b.pending.Ended())
}

// countBatch counts the items of a durable batch.
func (l *lane) countBatch(b *batch, results []fdbpq.Result) {
	t := l.d.traffic.lock(l.d.options.Now())
	defer t.mu.Unlock()

	for p := range b.each(results) {
		t.countLocked(p.Queue, trafficOf(p.ops, p.results))
	}

	for _, n := range b.pending.SideEffects() {
		if q, err := l.d.queue(n.Queue); err == nil { // no request can use a name that fails
			t.countLocked(q, subjects.Traffic{
				In: n.Fired + n.Next, Finished: int64(len(n.Ran)), Failed: n.RanOut, Dead: n.Dead,
			})
		}
		for _, ran := range n.Ran {
			if ran >= 0 {
				l.d.options.JobRan(ran)
			}
		}
	}
}

// trafficOf counts the items of a request. Purged, removed and redriven items do not count: nobody
// worked on them. A lease that was ended because nobody received the item is no failure.
func trafficOf(ops []fdbpq.Op, results []fdbpq.Result) (n subjects.Traffic) {
	for i := range ops {
		if results[i].Err != nil || results[i].Duplicate {
			continue
		}

		switch ops[i].Kind {
		case fdbpq.OpPush:
			n.In++
		case fdbpq.OpPop:
			n.Delivered++
			n.Out++
		case fdbpq.OpLease:
			n.Delivered++
		case fdbpq.OpAck:
			n.Out++
		case fdbpq.OpNak, fdbpq.OpTerm:
			if !ops[i].Uncounted {
				n.Failed++
			}
		}
	}

	return n
}

// answerRequest answers a request that does not wait, unless a later batch tries it again.
func (l *lane) answerRequest(r *Request, ops []fdbpq.Op, results []fdbpq.Result, now time.Time) {
	if acks := LeadingAcks(ops); acks > 0 && results[0].Err == nil {
		r.noteAcked(results[:acks])
	}

	if left := toRetry(ops, results); len(left) > 0 && !r.Each {
		err := l.runAgain(r, left)
		if err == nil {
			return
		}
		if !r.acked { // nothing was done, which ErrNoRoom would not say
			r.fail(ops, err)
			return
		}
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
	l.notifications++
	for p := range b.each(results) {
		if p.Queue.notified == l.notifications {
			continue
		}

		due := nextDue(p.ops, p.results)
		freed := func(r fdbpq.Result) bool { return r.Freed } // a place for a lease
		fills := itemsFilled(p.ops) > 0 || slices.ContainsFunc(p.results, freed) || !due.IsZero()
		if fills || has(p.ops, fdbpq.OpConfigure) {
			p.Queue.notified = l.notifications
			l.d.options.Filled(p.Queue)
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

// observeSizes learns from a request how large items are: the largest that it pushed or got.
func (l *lane) observeSizes(p requestOps) {
	size, got := 0, false
	for i := range p.results {
		m := &p.ops[i].Message
		if p.results[i].Err == nil && p.ops[i].Kind.Has(fdbpq.ReturnsItem) {
			got, m = true, &p.results[i].Item.Message
		}
		size = max(size, m.Size())
	}

	if got || p.Queue.itemSize.Load() > 0 {
		observeSize(&p.Queue.itemSize, size, got)
	}
	observeSize(&l.popSize, size, got)
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
