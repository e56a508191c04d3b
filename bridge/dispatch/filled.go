package dispatch

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// ringQueues calls Options.Filled for a durable batch, once for each queue.
func (l *lane) ringQueues(b *batch, results []fdbpq.Result) {
	filled := l.d.options.Filled
	if filled == nil {
		return
	}

	l.calls.rings++
	for r, ops := range b.each() {
		own := results[:len(ops)]
		results = results[len(ops):]
		if r.Queue.rung == l.calls.rings {
			continue
		}
		if itemsFilled(ops) > 0 || has(ops, fdbpq.OpConfigure) || freesPlace(own) || !nextDue(ops, own).IsZero() {
			r.Queue.rung = l.calls.rings
			filled(r.Queue)
		}
	}
}

// wakeFilled wakes those who wait for items of the queues that the batch has filled, here and
// elsewhere.
func (l *lane) wakeFilled(b *batch) {
	for _, q := range l.d.filledQueues(b.pending) {
		q.lane.wakeUnless(q, b)
		if filled := l.d.options.Filled; filled != nil {
			filled(q)
		}
	}
}

// wakeUnless is wakeLine, unless the batch was one of this lane that has itself found all that it
// brought back.
func (l *lane) wakeUnless(q *Queue, b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lineLocked(q)
	if ln == nil || slices.Contains(b.lines, ln) && ln.emptied == b.number && ln.nothing != nil && !hasNoRoom(ln.nothing) {
		return
	}
	l.wakeLineLocked(ln, wakeBudget)
}

// wakeLines has the lines of a batch that failed looked at again at once.
func (l *lane) wakeLines(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range b.lines {
		l.wakeLineLocked(ln, 1)
	}
}

// wakeDoubtful has the lines looked at whose queues may have got items from batches of unknown
// outcome, whether those committed or were undone.
func (l *lane) wakeDoubtful() {
	l.mu.Lock()
	queues := l.mu.doubtful
	l.mu.doubtful = nil
	l.mu.Unlock()
	wakeQueues(l.d, queues) // those of other lanes may have got dead letters
}

// wakeQueues wakes those who wait for items of queues, of whichever lane, here and elsewhere.
func wakeQueues(d *shared, queues []*Queue) {
	for _, q := range queues {
		q.lane.wakeLine(q)
		if filled := d.options.Filled; filled != nil {
			filled(q)
		}
	}
}
