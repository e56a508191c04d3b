package dispatch

import (
	"errors"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// finishWaiters ends a batch for the lines that had operations in it: it succeeded with these
// results, or failed. Waiters that have not ended wait on.
func (l *lane) finishWaiters(b *batch, results []fdbpq.Result, failed error) {
	l.mu.Lock()
	at := slices.Index(l.mu.inFlight, b)
	l.mu.inFlight = slices.Delete(l.mu.inFlight, at, at+1)

	for i := range b.requests {
		w := b.requests[i].waiter
		if w == nil {
			continue
		}
		w.refundLocked()
		switch {
		case w.state == waiterAcking && w.answered:
			l.moveWaiter(w, waiterLeft)
			l.d.release(&w.request)
		case w.state == waiterAcking:
			l.wakeLineLocked(l.joinLocked(w), wakeBudget)
			l.parkLocked(w)
		case w.answered:
			l.leaveLocked(w)
		default:
			l.parkLocked(w)
		}
	}

	// A line whose requests the batch was split by is done with the last of them.
	var ended []ending
	for _, ln := range b.lines {
		ln.inFlight--
		if failed != nil {
			ln.attempt.failed = failed
		}
		if ln.inFlight == 0 {
			ended = l.endAttemptLocked(b, ln, ended)
		}
	}
	if results != nil && len(l.mu.lines) > 0 {
		l.noteDuesLocked(b, results)
	}
	l.mu.Unlock()

	for _, e := range ended {
		l.endWaiter(e.waiter, e.why)
	}
}

// endAttemptLocked decides when the line is looked at next. It takes the waiters that do not wait
// for more out of the line, and appends them to ended.
func (l *lane) endAttemptLocked(b *batch, ln *line, ended []ending) []ending {
	f := &ln.attempt
	if ln.failed = f.failed; errors.Is(f.failed, ErrUnknownOutcome) {
		ln.failed = errSettles
	}

	switch {
	case f.full != nil && ln.state != lineStale:
		ln.limit = limitInForce
	case f.full != nil:
		ln.limit = limitMet
	default: // no lease has met it again
		ln.limit = min(ln.limit, limitMet)
	}
	stale := ln.state == lineStale
	l.moveLine(ln, lineQuiet)

	switch {
	case f.failed != nil:
		l.lookByLocked(ln, l.timers.now()+retryPause)
	case f.empty != nil:
		ln.nothing = asNothing(f.empty)
		if stale && errors.Is(f.empty, fdbpq.ErrGroupLimits) { // a group may be below its limit by now
			ln.budget, ln.guess = max(ln.budget, wakeBudget), true
		}
		l.lookWhenDueLocked(ln, f.due)
		ln.emptied = b.number
		ended = l.removeEndingLocked(ln, f.empty, ended)
	case f.full != nil:
		ln.nothing = limitError{f.full}
		l.lookWhenDueLocked(ln, f.due)
		ln.noLease = b.number
		ended = l.removeEndingLocked(ln, f.full, ended)
		if ln.budget = 0; ln.servable() { // it has pops without a lease, or a place may be free by now
			ln.budget, ln.guess = wakeBudget, true
		}
	case f.guess || f.stuck != nil:
		switch { // it looks again at once, but waiters whose time is up need not wait for that
		case errors.Is(f.stuck, fdbpq.ErrEmpty):
			ln.nothing, ln.emptied = f.stuck, b.number
		case errors.Is(f.stuck, fdbpq.ErrMaxLeased):
			ln.nothing, ln.noLease = limitError{f.stuck}, b.number
		}
		ln.guess = true
		ln.budget = max(ln.budget+f.unused, 2*f.pops, wakeBudget)
	default:
		ln.budget += f.unused
	}

	l.makeReadyLocked(ln)
	l.dropEmptyLocked(ln)
	return ended
}

// removeEndingLocked takes requests that wait no longer out of the line if nothing was found for
// them, because of why, and appends them to ended.
func (l *lane) removeEndingLocked(ln *line, why error, ended []ending) []ending {
	for w := ln.waiters.last; w != nil && ln.ending > 0; {
		before := w.prev
		if w.endsWhenEmpty() && w.lookedLocked() {
			ended = append(ended, ending{w, w.waitedFor(why)})
			l.leaveLocked(w)
		}
		w = before
	}
	return ended
}

// noteDuesLocked has lines looked at when leases and delays of the batch are over.
func (l *lane) noteDuesLocked(b *batch, results []fdbpq.Result) {
	for r, ops := range b.each() {
		own := results[:len(ops)]
		results = results[len(ops):]
		if ln := l.lineLocked(r.Queue); ln != nil {
			l.lookWhenDueLocked(ln, nextDue(ops, own))
		}
	}
}

// tellFilled calls Options.Filled for a durable batch, once for each queue.
func (l *lane) tellFilled(b *batch, results []fdbpq.Result) {
	filled := l.d.options.Filled
	if filled == nil {
		return
	}

	l.rings++
	for r, ops := range b.each() {
		own := results[:len(ops)]
		results = results[len(ops):]
		if r.Queue.rung == l.rings {
			continue
		}
		if itemsFilled(ops) > 0 || has(ops, fdbpq.OpConfigure) || freesPlace(own) || !nextDue(ops, own).IsZero() {
			r.Queue.rung = l.rings
			filled(r.Queue)
		}
	}
}

// wakeUnlessLooked is wakeLine, unless the batch was one of this lane that has itself found all
// that it brought back.
func (l *lane) wakeUnlessLooked(q *Queue, b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lineLocked(q)
	if ln == nil {
		return
	}
	looked := b != nil && slices.Contains(b.lines, ln) && ln.emptied == b.number
	if !looked || ln.nothing == nil || hasNoRoom(ln.nothing) {
		l.wakeLineLocked(ln, wakeBudget)
	}
}

// retryLines has the lines of a batch that failed looked at again at once.
func (l *lane) retryLines(b *batch) {
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
	wakeQueues(l.d, queues, nil) // those of other lanes may have got dead letters
}

// wakeQueues wakes the pops that wait for items of queues that b has filled, here and elsewhere. b
// is nil for what was no batch of a lane, or is not known to be done.
func wakeQueues(d *shared, queues []*Queue, b *batch) {
	for _, q := range queues {
		q.lane.wakeUnlessLooked(q, b)
		if filled := d.options.Filled; filled != nil {
			filled(q)
		}
	}
}
