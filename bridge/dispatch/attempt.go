package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// queueUpLocked puts a request into the line of its queue. If it is the first one there, this batch
// looks for its items. Otherwise the queue is empty or about to be looked at, and the request
// parks.
func (l *lane) queueUpLocked(b *batch, r *Request, ops []fdbpq.Op) {
	w := newWaiter(r, ops)
	if w.cancelled() && len(w.acks) == 0 {
		l.joinLocked(w)
		l.leaveCancelledLocked(w) // before it takes anything
		return
	}

	ln := l.lineLocked(r.Queue)
	first := !w.blocked() && (ln == nil || ln.admitsFirst(w))

	// Acknowledgements do not wait for those in line. The request joins them once they are done.
	if len(w.acks) > 0 && !first {
		l.moveWaiter(w, waiterAcking)
		b.addWaiter(w, w.acks, r.Received)
		return
	}

	ln = l.joinLocked(w)
	if first {
		l.moveWaiter(w, waiterFirst)
		ln.guess = true
		ln.budget += w.wanted
		l.reserveLocked(b, ln, w.wanted)
		b.reserved += len(w.acks)
		b.bytes += r.Size
		return
	}

	w.onlyIfEmpty = false // it has not looked, but found others before it
	l.parkLocked(w)
	switch {
	case !w.waits():
		l.wakeLineLocked(ln, wakeBudget)

	// The others wait for leases or groups, so there may be items for this one.
	case ln.limitInForce() && !w.leases(), ln.blocked > 0:
		ln.expect(w.wanted)
		l.makeReadyLocked(ln)
	}
}

// admitsFirst reports whether the batch that is being made may look for a new waiter at once:
// nobody in the line has to come before it.
func (ln *line) admitsFirst(w *waiter) bool {
	if ln.inFlight > 0 {
		return false
	}
	allInThisBatch := !ln.waiters.last.state.hasParked()
	return allInThisBatch || len(w.acks) > 0 && !ln.servable()
}

// serveLocked makes the batch also pop for a line if operations in it make items of its queue
// ready. While the store refuses pushes, batches with pushes have no pops, so the next batch pops
// for the line.
func (l *lane) serveLocked(b *batch, ln *line, ops []fdbpq.Op, refusesPushes bool) {
	// These may end a pause, or any number of leases.
	if has(ops, fdbpq.OpConfigure) || has(ops, fdbpq.OpPurge) {
		l.wakeLineLocked(ln, wakeBudget)
	}

	n := itemsFilled(ops)
	if ended := leasesEnded(ops); ended > 0 {
		l.noteEventLocked(ln)
		if ln.noLease > 0 {
			n = max(n, ended)
		}

		// The lease may be of a group at its limit. One free place is enough for any number of
		// pops.
		if errors.Is(ln.nothing, fdbpq.ErrGroupLimits) {
			n = max(n, ended)
			ln.guess = ln.guess || ln.waiters.n > ln.leases
		}
	}

	ln.budget += n
	looks := n > 0 && !refusesPushes && ln.inFlight == 0 && ln.servable()
	if looks && !l.d.load.tooMuchUnconfirmed(ln.queue) {
		l.reserveLocked(b, ln, min(n, max(l.d.options.MaxBatch-len(b.ops)-b.reserved, 1)))
	}
	l.makeReadyLocked(ln)
}

// reserveLocked reserves room in the batch for pops of a line.
func (l *lane) reserveLocked(b *batch, ln *line, pops int) {
	if ln.state != lineReserved {
		l.moveLine(ln, lineReserved)
		b.lines = append(b.lines, ln)
	}
	ln.reserved += pops
	b.reserved += pops
	b.bytes += pops * l.lineCost(ln)
}

// lineCost is the popCost of a line. A speculative look costs little, or large items elsewhere in
// the lane would split the looks at many queues among very many batches. The Batcher has limits of
// its own.
func (l *lane) lineCost(ln *line) int {
	if ln.speculative && ln.budget == 1 {
		return opOverhead
	}
	return l.popCost(ln.queue)
}

// takeReadyLocked reserves room for the ready lines, up to half of the batch.
func (l *lane) takeReadyLocked(b *batch) {
	pops, bytes := max(l.d.options.MaxBatch/2, 1), l.d.options.MaxBatchBytes/2

	for l.mu.ready.n > 0 && b.reserved < pops && b.bytes < bytes {
		ln := l.mu.ready.first

		// A line without pops could leave the batch empty, and an empty batch is never answered.
		if !ln.servable() || l.d.load.tooMuchUnconfirmed(ln.queue) {
			l.moveLine(ln, lineQuiet)
			continue
		}

		fits := max((bytes-b.bytes)/l.lineCost(ln), 1)
		l.reserveLocked(b, ln, min(ln.budget, pops-b.reserved, fits))
	}
}

// addPopsLocked adds pops of the first waiters of each line, up to those reserved, and numbers the
// look.
func (l *lane) addPopsLocked(b *batch) {
	b.look = l.tickLocked()
	now := time.Now()
	for _, ln := range b.lines {
		ln.attempt = attempt{guess: ln.guess}
		for w := ln.waiters.first; w != nil && ln.attempt.pops < ln.reserved; {
			next := w.next
			switch {
			case ln.limitInForce() && w.state.hasParked() && w.leases():
			case !w.blocked():
				ln.attempt.pops += l.addPopsOfLocked(b, w, ln.reserved-ln.attempt.pops, now)
			case w.state == waiterFirst: // others in the batch have taken the last credits
				l.parkLocked(w)
			}
			w = next
		}

		ln.attempt.unused = max(ln.budget-ln.attempt.pops, 0)
		ln.budget, ln.guess, ln.speculative, ln.reserved = 0, false, false, 0
		ln.inFlight++
		l.moveLine(ln, lineTrying)
	}
	b.reserved = 0
}

// addPopsOfLocked adds what a waiter wants to the batch, and returns how many pops that are. They
// may exceed what is left, unless the waiter waits on.
func (l *lane) addPopsOfLocked(b *batch, w *waiter, left int, now time.Time) int {
	// received decides how long the batch may take: see startBatch.
	n, received := w.wanted, w.request.Received
	switch w.state {
	case waiterLate:
		received = w.request.Wait.Until // w.request.Received leaves too little time
		l.moveWaiter(w, waiterLateTrying)
	case waiterParked:
		if w.waits() {
			n, received = min(n, left), now // it is in no hurry
		}
		l.moveWaiter(w, waiterTrying)
	}

	n = w.chargeLocked(n)
	l.popBuffer = w.appendPops(append(l.popBuffer[:0], w.acks...), n)
	b.addWaiter(w, l.popBuffer, received)
	return n
}

// finishWaiters ends a batch for the lines that had operations in it: with results, or with the
// error that it failed with. Waiters that have not been answered wait on.
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

	// If damaged data split a batch, the attempt of a line ends with the last part.
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

// endAttemptLocked decides from what a look found when the next one comes, and with what budget:
//
//	it failed            after a pause
//	the queue is empty   when an item falls due, or at once for budget raised since the look
//	no lease possible    when a lease ends, or at once if something may have changed
//	it may have left     at once, twice as many pops
//	it found all         at once, for the unused part of its budget
//
// The look took the budget, so the line has what was raised since. Waiters that end now leave the
// line, and are appended to ended.
func (l *lane) endAttemptLocked(b *batch, ln *line, ended []ending) []ending {
	f := &ln.attempt
	if ln.failed = f.failed; errors.Is(f.failed, ErrUnknownOutcome) {
		ln.failed = errSettles
	}

	outdated := ln.event > b.look
	if f.full != nil {
		ln.noLease, ln.nothing = b.look, asNothing(f.full)
	} else {
		l.noteEventLocked(ln) // no lease has met the limit again
	}
	l.moveLine(ln, lineQuiet)

	switch {
	case f.failed != nil:
		l.lookByLocked(ln, l.timers.now()+retryPause)

	case f.empty != nil:
		ln.emptied, ln.nothing = b.look, asNothing(f.empty)
		ended = l.endEmptyLocked(ln, f.empty, ended)

		// If a lease of a group at its limit has ended, any number of its items may be available.
		if outdated && errors.Is(f.empty, fdbpq.ErrGroupLimits) {
			ln.expect(wakeBudget)
		}

	case f.full != nil:
		ended = l.endEmptyLocked(ln, f.full, ended)

		// Items are left: for pops, or for leases if one of the others has ended.
		if ln.budget = 0; ln.servable() {
			ln.expect(wakeBudget)
		}

	case f.guess || f.stuck != nil:
		ln.expect(max(ln.budget+f.unused, 2*f.pops, wakeBudget))

	default:
		ln.budget += f.unused
	}

	l.makeReadyLocked(ln)
	l.dropEmptyLocked(ln)
	return ended
}

// endEmptyLocked ends a look that found nothing, which is why. The line is looked at again when an
// item falls due. Waiters that end when nothing is found leave it, and are appended to ended.
func (l *lane) endEmptyLocked(ln *line, why error, ended []ending) []ending {
	l.lookWhenDueLocked(ln, ln.attempt.due)
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

// noteDuesLocked has lines looked at when leases and delays of the batch end.
func (l *lane) noteDuesLocked(b *batch, results []fdbpq.Result) {
	for p := range b.each(results) {
		if ln := l.lineLocked(p.Queue); ln != nil {
			l.lookWhenDueLocked(ln, nextDue(p.ops, p.results))
		}
	}
}
