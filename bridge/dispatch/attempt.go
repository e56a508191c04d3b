package dispatch

import (
	"errors"
	"slices"
	"time"

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

// queueUpLocked puts a request into the line of its queue. If nobody was there before it, it
// looks for items with this batch, unless that has no room for it. Otherwise it waits its turn,
// because the queue is empty or about to be looked at.
func (l *lane) queueUpLocked(b *batch, r *Request, ops []fdbpq.Op, full bool) {
	w := newWaiter(r, ops)
	if w.cancelled() && len(w.acks) == 0 {
		l.joinLocked(w)
		l.leaveCancelledLocked(w) // before it takes anything
		return
	}

	ln := l.lineLocked(r.Queue)
	first := !full && !w.blocked() &&
		(ln == nil || ln.inFlight == 0 && (!ln.waiters.last.state.hasParked() || len(w.acks) > 0 && !ln.servable()))
	if len(w.acks) > 0 && !first {
		// The acknowledgements do not wait. What they end gets its place once that is done.
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
	case ln.limit == limitInForce && !w.leases(), ln.blocked > 0: // others are kept back, but there are items
		ln.budget, ln.guess = max(ln.budget, w.wanted), true
		l.makeReadyLocked(ln)
	}
}

// serveLocked has the batch serve a line as well if a request in it makes items of its queue
// ready. Where pushes are kept apart, the next batch does.
func (l *lane) serveLocked(b *batch, r *Request, ops []fdbpq.Op, apart bool) {
	ln := l.lineLocked(r.Queue)
	if ln == nil {
		return
	}
	if has(ops, fdbpq.OpConfigure) || has(ops, fdbpq.OpPurge) { // it may end a pause, or any number of leases
		l.wakeLineLocked(ln, wakeBudget)
	}

	n := itemsFilled(ops)
	if ended := leasesEnded(ops); ended > 0 {
		l.noteChangeLocked(ln)
		if ln.limit != limitUnmet {
			ln.limit = limitMet
			n = max(n, ended)
		}
		if errors.Is(ln.nothing, fdbpq.ErrGroupLimits) { // one of a group that is at its limit
			n = max(n, ended)
			ln.guess = ln.guess || ln.waiters.n > ln.leases // one free place is enough for any number of pops
		}
	}

	ln.budget += n
	if n > 0 && !apart && ln.inFlight == 0 && ln.servable() && !l.d.load.keepsTooMuchOf(ln.queue) {
		l.reserveLocked(b, ln, min(n, max(l.d.options.MaxBatch-len(b.ops)-b.reserved, 1)))
	}
	l.makeReadyLocked(ln)
}

// reserveLocked reserves room in the batch for pops of a line.
func (l *lane) reserveLocked(b *batch, ln *line, pops int) {
	if ln.state != lineReserved {
		l.unlistLocked(ln)
		l.moveLine(ln, lineReserved)
		b.lines = append(b.lines, ln)
	}
	ln.reserved += pops
	b.reserved += pops
	b.bytes += pops * l.popCost(ln.queue)
}

// takeReadyLocked reserves room for the lines that are to be looked at, and leaves half of the
// batch to requests.
func (l *lane) takeReadyLocked(b *batch) {
	l.readyHeldLocked()
	pops, bytes := max(l.d.options.MaxBatch/2, 1), l.d.options.MaxBatchBytes/2

	for l.mu.ready.n > 0 && b.reserved < pops && b.bytes < bytes {
		ln := l.mu.ready.first
		if l.d.load.keepsTooMuchOf(ln.queue) {
			l.mu.ready.remove(ln)
			l.moveLine(ln, lineHeld)
			l.mu.held.push(ln)
			continue
		}
		if !ln.servable() {
			// A line without pops must not come into a batch, which could end up empty and would
			// never be answered.
			l.mu.ready.remove(ln)
			l.moveLine(ln, lineQuiet)
			continue
		}
		room := max((bytes-b.bytes)/l.popCost(ln.queue), 1)
		l.reserveLocked(b, ln, min(ln.budget, pops-b.reserved, room))
	}
}

// readyHeldLocked puts the lines that are held behind those that are ready, if less is kept since
// they were.
func (l *lane) readyHeldLocked() {
	frees := l.d.load.frees.Load()
	if frees == l.mu.frees {
		return
	}

	l.mu.frees = frees
	for ln := l.mu.held.first; ln != nil; ln = l.mu.held.first {
		l.mu.held.remove(ln)
		l.moveLine(ln, lineReady)
		l.mu.ready.push(ln)
	}
}

// addPopsLocked adds the operations of those that are first in line.
func (l *lane) addPopsLocked(b *batch) {
	now := time.Now()
	for _, ln := range b.lines {
		room := ln.reserved
		ln.attempt = attempt{guess: ln.guess}
		for w, next := ln.waiters.first, (*waiter)(nil); w != nil && room > 0; w = next {
			next = w.next
			if ln.limit == limitInForce && w.state.hasParked() && w.leases() {
				continue
			}
			if w.blocked() {
				if w.state == waiterFirst { // others of the batch have taken the last credits
					l.parkLocked(w)
				}
				continue
			}

			n, received := w.wanted, w.request.Received
			switch w.state {
			case waiterLate:
				received = w.request.Wait.Until // it would leave the others half of their time
				l.moveWaiter(w, waiterLateTrying)
			case waiterParked:
				if w.waits() {
					n, received = min(n, room), now // it is in no hurry
				}
				l.moveWaiter(w, waiterTrying)
			}

			n = w.chargeLocked(n)
			l.popBuffer = w.appendPops(append(l.popBuffer[:0], w.acks...), n)
			b.addWaiter(w, l.popBuffer, received)
			room -= n
			ln.attempt.pops += n
		}

		ln.attempt.unused = max(ln.budget-ln.attempt.pops, 0)
		ln.budget, ln.guess, ln.reserved = 0, false, 0
		ln.inFlight++
		l.moveLine(ln, lineTrying)
	}
	b.reserved = 0
}
