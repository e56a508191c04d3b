package dispatch

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// takeBatch returns the next batch, nil if there is nothing to run.
//
// Requests come first in it, then the pops of lines. Three backlogs take turns at going first: the
// requests that were set aside, the items that go back into their queues, and all other requests.
func (l *lane) takeBatch(ctx context.Context) *batch {
	if ctx.Err() != nil {
		l.failOverdue(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	b := l.spare.Get().(*batch)
	l.mu.batches++

	// Ready lines reserve up to half of the batch before requests fill it.
	if l.mu.ready.n > 0 && !l.excludesPopsLocked() {
		l.takeReadyLocked(b)
	}
	l.takeRequestsLocked(b)
	l.addPopsLocked(b)

	// Lazy requests that found no room have waited long enough.
	l.mu.lazyDue = l.mu.backlog.lazy > 0

	if len(b.ops) == 0 {
		l.spare.Put(b)
		return nil
	}

	l.mu.inFlight = append(l.mu.inFlight, b)
	l.makeNewestLocked(b)
	return b
}

// excludesPopsLocked reports whether the pops of lines must not come before the next request in a
// batch: it is a purge, or wants a batch for itself.
func (l *lane) excludesPopsLocked() bool {
	from := l.nextLocked()
	if from == nil {
		return false
	}
	r, ops := from.first()
	return r.exclusive || has(ops, fdbpq.OpPurge)
}

// takeRequestsLocked moves requests from the backlogs into the batch until it is full, or until the
// next request must not share a batch with those in it. It sets a request aside if its queue has
// too much unconfirmed (see Options.MaxUnconfirmed), or has had its share of the batch, or if an
// earlier request of the queue is set aside.
func (l *lane) takeRequestsLocked(b *batch) {
	options, refusesPushes := &l.d.options, l.d.health.refusesPushes.Load()
	now := time.Now()
	for from := l.nextLocked(); from != nil; from = l.nextLocked() {
		r, ops := from.first()
		q, takes := r.Queue, TakesItem(ops)

		// If the process stood still, the timers may not have answered it yet.
		if late := r.isLate(now); late || r.OutOfTouch != nil && r.OutOfTouch() {
			why := errOutOfTouch
			if late {
				why = turnError(r.Received)
			}
			l.refused = append(l.refused, refusal{copyOf(r, ops), why})
			l.removeFirstLocked(from)
			continue
		}

		if q.shareOf != l.mu.batches {
			q.shareOf, q.shareBytes = l.mu.batches, 0
		}
		tooMuch := takes && l.d.load.tooMuchUnconfirmed(q) ||
			q.shareBytes > options.MaxBatchBytes/queueShareDivisor
		if from == &l.mu.backlog && (tooMuch || q.aside.Load() > 0) {
			q.aside.Add(1)
			l.mu.aside.push(r, ops)
			l.mu.backlog.pop()
			continue
		}

		bytes := l.expectedBytes(r, ops)
		operations := len(b.ops) + b.reserved + r.operations(ops)
		full := operations > options.MaxBatch || b.bytes+bytes > options.MaxBatchBytes
		if len(b.ops)+b.reserved > 0 && (full || b.excludes(r, ops, refusesPushes)) {
			return
		}

		// A request takes its place in the line of its queue if it waits for items, or pops where
		// others wait.
		ln := l.lineLocked(q)
		if takes && (r.Wait != nil || ln != nil) {
			l.queueUpLocked(b, r, ops)
		} else {
			b.add(r, ops)
			b.bytes += bytes
			if ln != nil {
				l.serveLocked(b, ln, ops, refusesPushes)
			}
		}
		q.shareBytes += bytes
		l.removeFirstLocked(from)
	}
}

// excludes reports whether a request must not share the batch with the requests in it.
func (b *batch) excludes(r *Request, ops []fdbpq.Op, refusesPushes bool) bool {
	if b.exclusive || r.exclusive {
		return true
	}

	// A purge runs after the pushes of its batch. Items pushed after the purge must stay, even if
	// the client did not wait for its reply.
	if b.purges != has(ops, fdbpq.OpPurge) {
		return true
	}

	// The operations of a batch are reordered, so a read could miss an earlier push of its client.
	// Only a client that asked for no reply to the push would notice.
	if b.silent && (has(ops, fdbpq.OpLen) || has(ops, fdbpq.OpInfo)) {
		return true
	}

	// The store refused the last push. If it is full, it may still accept pops, so pushes get
	// batches of their own until it accepts one.
	return refusesPushes && b.pushes != anyPushes(ops)
}

// makeNewestLocked makes b the newest batch. A batch that only reads sees only durable data, so it
// first waits until all pushes without a reply are durable.
func (l *lane) makeNewestLocked(b *batch) {
	for !b.writes && l.mu.silent > 0 {
		l.mu.changed.Wait()
	}

	if b.silent {
		l.mu.silent++
	}
	l.mu.newest = b
}

// takeableLocked is about how many operations the next batch could have.
func (l *lane) takeableLocked() int {
	n := l.mu.ready.n
	for _, from := range l.backlogsLocked() {
		if l.availableLocked(from) {
			n += from.operations
		}
	}

	return n
}

// nextLocked returns the backlog with the next request to run, nil if there is none.
func (l *lane) nextLocked() *backlog {
	for _, from := range l.backlogsLocked() {
		if l.availableLocked(from) {
			return from
		}
	}
	return nil
}

// availableLocked reports whether the first request of a backlog may run. A request that takes
// items must not run while too many bytes are unconfirmed, see Options.MaxUnconfirmed.
func (l *lane) availableLocked(from *backlog) bool {
	r, ops := from.first()
	if r == nil || !TakesItem(ops) {
		return r != nil
	}
	return l.d.load.mayTake(from == &l.mu.aside)
}

// removeFirstLocked removes the first request of a backlog.
func (l *lane) removeFirstLocked(from *backlog) {
	if from == &l.mu.aside {
		r, _ := from.first()
		r.Queue.aside.Add(-1)
	}
	from.pop()
}

// queueShareDivisor gives a queue its share of a batch, so that one whose requests or items are
// large does not keep the others waiting. Once the requests of a queue exceed
// MaxBatchBytes/queueShareDivisor, its further requests are set aside.
const queueShareDivisor = 4

const (
	// sweepBytes is roughly how many bytes all sweeps of a batch add to a transaction.
	sweepBytes = 1 << 20
	// sweepPage is how many queues the Sweeper sweeps at a time.
	sweepPage = 32
)

// expectedBytes estimates how many bytes the request adds to a transaction.
func (l *lane) expectedBytes(r *Request, ops []fdbpq.Op) int {
	bytes := r.Size + opOverhead*len(ops)
	if r.Pops > 1 {
		bytes += (r.Pops - 1) * l.popCost(r.Queue)
	}

	for i := range ops {
		switch kind := ops[i].Kind; {
		case kind.Has(fdbpq.MovesItem):
			bytes += l.itemSize(r.Queue)
		case kind == fdbpq.OpSweep:
			bytes += sweepBytes / sweepPage
		}
	}

	return bytes
}

const (
	// lazyTime is how long a lazy request waits for others before a batch starts for it. Mostly it
	// shares the batch, and the sync, of a request that somebody waits for.
	lazyTime = time.Millisecond
	// maxLazy is how many operations of lazy requests start a batch at once.
	maxLazy = 250
)

// enoughLocked reports whether it is time to start a batch.
func (l *lane) enoughLocked() bool {
	n, newest := l.takeableLocked(), l.mu.newest
	if lazy := l.mu.backlog.lazy; lazy < maxLazy && !l.mu.lazyDue {
		n -= lazy
	}
	if n <= 0 || newest == nil {
		return n > 0
	}

	// A second batch in flight is smaller than the first if it starts too early, and many small
	// batches cost more than they gain.
	if n < len(newest.ops) {
		return false
	}

	waiting := l.mu.returns.len() + l.mu.backlog.nonPushes + l.mu.aside.nonPushes + l.mu.ready.n
	onlyPushes := !newest.nonPushes && waiting == 0
	traits := l.d.options.DB.Traits()
	return newest.durable || traits.Pipelines || onlyPushes && !traits.Serial
}

// runAgain appends a request to the backlog again, regardless of the load limits. Acknowledgements
// together may need the room of a whole transaction, so others would keep them waiting.
func (l *lane) runAgain(r *Request, ops []fdbpq.Op) error {
	r.exclusive = r.exclusive || LeadingAcks(ops) > 1
	return l.requeueIn(&l.mu.backlog, r, ops)
}

// requeueIn appends a request to a backlog, regardless of the load limits.
func (l *lane) requeueIn(to *backlog, r *Request, ops []fdbpq.Op) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.mu.ended {
		return errClosed
	}

	l.d.load.requests.Add(1)
	l.d.load.bytes.Add(int64(r.Size))
	if r.Wait != nil {
		l.d.waiters.Add(1)
	}
	l.pushLocked(to, r, ops)
	l.mu.changed.Signal()
	return nil
}

// pushLocked appends a copy of a request to a backlog, with the time by which its batch must begin.
func (l *lane) pushLocked(to *backlog, r *Request, ops []fdbpq.Op) {
	queued := *r
	queued.exclusive = r.exclusive || r.Each

	queued.turnBy = r.Received.Add(TurnTime(l.d.options.RequestTimeout))
	if r.Wait != nil {
		if last := r.Wait.Until.Add(l.lateTime() - l.pageTime()); last.Before(queued.turnBy) {
			queued.turnBy = last
		}
	}

	to.push(&queued, ops)
	l.watchOverdueLocked(l.timers.since(queued.turnBy))
}
