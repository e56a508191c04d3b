package dispatch

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// takeBatch returns the next batch, nil if there is none.
//
// A batch reorders its operations, and one that only reads sees only durable data. Whoever pushes
// without asking for a reply and then reads could notice. So a len or info never shares a batch with
// an earlier push that has no reply, and a batch that only reads waits for such pushes.
//
// In a batch, a purge runs after the pushes and before the pops. So purges share batches only with
// each other, and items pushed after a purge stay, even if the client did not wait for its reply.
//
// From a push that the store refused to one that it took, pushes have batches of their own:
// the store may be full, and take pops.
//
// A queue whose requests are large, or return large items, must not keep the others waiting. Once it
// has had its part of a batch, its further requests are set aside. What was set aside, what goes back
// into queues and the rest take turns at being first. While too much of what may go back is in
// memory, requests that take items are set aside and stay there: see Options.MaxKept.
//
// Requests that wait, and pops of queues where others wait, take their places in line. What
// the batch has for lines comes after its other operations. Where several pop many items from a
// queue that ran out of them, those for which the batch has no room form a line: if there is nothing
// more, all of them end together, instead of each filling a batch.
func (l *lane) takeBatch(ctx context.Context) *batch {
	l.failOverdue(ctx, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.takeableLocked() == 0 {
		return nil
	}
	b := l.spare.Get().(*batch)
	l.mu.batches++
	b.number = l.mu.batches

	// Lines that are ready get their half first, unless the batch is to have one request alone.
	if from := l.nextLocked(); from == nil || !isAlone(from.first()) {
		l.takeReadyLocked(b)
	}
	l.takeRequestsLocked(b)
	l.addPopsLocked(b)

	l.mu.lazyDue = l.mu.backlog.lazy > 0 // the batch has no room for them

	if len(b.ops) == 0 {
		l.spare.Put(b)
		return nil
	}
	l.mu.inFlight = append(l.mu.inFlight, b)
	l.makeNewestLocked(b)
	return b
}

// takeRequestsLocked moves requests from the backlogs into the batch, as many as it may have.
func (l *lane) takeRequestsLocked(b *batch) {
	options, apart := &l.d.options, l.d.health.refusesPushes.Load()
	for from := l.nextLocked(); from != nil; from = l.nextLocked() {
		r, ops := from.first()
		if from == &l.mu.backlog && l.mustWaitLocked(r, ops) {
			l.setAsideLocked()
			continue
		}

		bytes := l.expectedBytes(r, ops)
		full := b.bytes+bytes > options.MaxBatchBytes ||
			len(b.ops)+b.reserved+r.operations(ops) > options.MaxBatch
		mixes := apart && b.pushes != has(ops, fdbpq.OpPush) || b.purges != has(ops, fdbpq.OpPurge)
		reads := b.silent && (has(ops, fdbpq.OpLen) || has(ops, fdbpq.OpInfo))

		if full && b.many == r.Queue && r.Queue.ranOut.Load() && r.Wait == nil && r.Pops > 1 && len(ops) == 1 {
			l.queueUpLocked(b, r, ops, true)
			l.removeFirstLocked(from)
			continue
		}
		if from == &l.mu.backlog && l.exceedsShare(b, r.Queue) {
			l.setAsideLocked()
			continue
		}
		if len(b.ops)+b.reserved > 0 && (full || mixes || reads || b.alone || r.alone) {
			return
		}

		if l.queuesUpLocked(r, ops) {
			l.queueUpLocked(b, r, ops, false)
		} else {
			b.add(r, ops)
			b.bytes += bytes
			if r.Pops > 1 {
				b.many = r.Queue
			}
			l.serveLocked(b, r, ops, apart)
		}
		b.countShare(r.Queue, bytes)
		l.removeFirstLocked(from)
	}
}

// makeNewestLocked makes b the newest batch, once it may start.
func (l *lane) makeNewestLocked(b *batch) {
	for !b.writes && l.mu.silent > 0 {
		l.mu.changed.Wait()
	}
	if b.silent {
		l.mu.silent++
	}
	l.mu.newest = b
}

// queuesUpLocked reports whether the request has to take its place in the line of its queue:
// it waits, or it pops where others wait.
func (l *lane) queuesUpLocked(r *Request, ops []fdbpq.Op) bool {
	if !takesItem(ops[len(ops)-1].Kind) {
		return false
	}
	return r.Wait != nil || l.lineLocked(r.Queue) != nil
}

// takeableLocked is about how many operations the next batch could have.
func (l *lane) takeableLocked() int {
	n := l.mu.ready.n
	if l.mu.frees != l.d.load.frees.Load() {
		n += l.mu.held.n
	}
	for _, from := range l.backlogsLocked() {
		if l.availableLocked(from) {
			n += from.operations
		}
	}
	return n
}

// nextLocked returns the backlog that has the next request to run, nil if there is none.
func (l *lane) nextLocked() *backlog {
	for _, from := range l.backlogsLocked() {
		if l.availableLocked(from) {
			return from
		}
	}
	return nil
}

// availableLocked reports whether the first request of a backlog may run. Not while it takes items and
// too much is kept.
func (l *lane) availableLocked(from *backlog) bool {
	r, ops := from.first()
	if r == nil || !takesItem(ops[len(ops)-1].Kind) {
		return r != nil
	}
	return l.d.load.mayTake(from == &l.mu.aside)
}

// setAsideLocked moves the first request of the backlog to aside.
func (l *lane) setAsideLocked() {
	r, ops := l.mu.backlog.first()
	r.Queue.aside.Add(1)
	l.mu.aside.push(r, ops)
	l.mu.backlog.pop()
}

// removeFirstLocked removes the first request of a backlog.
func (l *lane) removeFirstLocked(from *backlog) {
	if from == &l.mu.aside {
		r, _ := from.first()
		r.Queue.aside.Add(-1)
	}
	from.pop()
}

// mustWaitLocked reports whether a request has to wait because too much of its queue is kept, or because
// one in front of it is set aside.
func (l *lane) mustWaitLocked(r *Request, ops []fdbpq.Op) bool {
	return r.Queue.aside.Load() > 0 || takesItem(ops[len(ops)-1].Kind) && l.d.load.keepsTooMuchOf(r.Queue)
}

// queueShare is the part of a batch that the requests of a queue may take without those behind them
// being set aside.
const queueShare = 4

// exceedsShare reports whether a queue has its part of the batch.
func (l *lane) exceedsShare(b *batch, q *Queue) bool {
	return q.shareOf == b.number && q.shareBytes > l.d.options.MaxBatchBytes/queueShare
}

// countShare counts the bytes of a request against the part of its queue.
func (b *batch) countShare(q *Queue, bytes int) {
	if q.shareOf != b.number {
		q.shareOf, q.shareBytes = b.number, 0
	}
	q.shareBytes += bytes
}

// isAlone reports whether a request must not come behind pops of lines in a batch: it is to have a
// batch of its own, or to share it with purges alone.
func isAlone(r *Request, ops []fdbpq.Op) bool {
	return r != nil && (r.alone || has(ops, fdbpq.OpPurge))
}

// sweepBytes is roughly how many bytes the sweeps of a batch add to a transaction.
const sweepBytes = 1 << 20

// sweepPage is how many queues the Sweeper sweeps at a time.
const sweepPage = 32

// expectedBytes estimates the bytes that the request adds to a transaction.
func (l *lane) expectedBytes(r *Request, ops []fdbpq.Op) int {
	bytes := r.Size + opOverhead*len(ops)
	if r.Pops > 1 {
		bytes += (r.Pops - 1) * l.popCost(r.Queue)
	}

	for i := range ops {
		switch kind := ops[i].Kind; {
		case movesItem(kind):
			bytes += l.itemSize(r.Queue)
		case kind == fdbpq.OpSweep: // those of a batch share their room
			bytes += sweepBytes / sweepPage
		}
	}
	return bytes
}

// enoughLocked reports whether it is time to start a batch.
func (l *lane) enoughLocked() bool {
	n, newest := l.takeableLocked(), l.mu.newest
	if lazy := l.mu.backlog.lazy; lazy < maxLazy && !l.mu.lazyDue {
		n -= lazy
	}
	if n <= 0 || newest == nil {
		return n > 0
	}
	onlyPushes := !newest.nonPushes && l.mu.returns.len() == 0 && l.mu.backlog.nonPushes+l.mu.aside.nonPushes == 0 &&
		l.mu.ready.n == 0
	traits := l.d.options.DB.Traits()
	return n >= len(newest.ops) && (newest.durable || traits.Pipelines || onlyPushes && !traits.Serial)
}

// A batch of lazy requests alone begins lazyTime after the first of them, or once they have maxLazy
// operations. So they mostly share the batch, and the sync, of a request that somebody waits for.
const (
	lazyTime = time.Millisecond
	maxLazy  = 250
)
