package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// queuesUpLocked reports whether the request has to take its place in the line of its queue:
// it waits, or it pops where others wait.
func (l *lane) queuesUpLocked(r *Request, ops []fdbpq.Op) bool {
	if !takesItem(ops[len(ops)-1].Kind) {
		return false
	}
	return r.Wait != nil || l.lineLocked(r.Queue) != nil
}

// queueUpLocked puts a request into the line of its queue. If nobody was there before it, it
// looks for items with this batch. Otherwise it waits its turn, because the queue is empty or
// about to be looked at.
func (l *lane) queueUpLocked(b *batch, r *Request, ops []fdbpq.Op) {
	w := newWaiter(r, ops)
	if w.cancelled() && len(w.acks) == 0 {
		l.joinLocked(w)
		l.leaveCancelledLocked(w) // before it takes anything
		return
	}

	ln := l.lineLocked(r.Queue)
	first := ln == nil || ln.inFlight == 0 && (!ln.last.state.hasParked() || len(w.acks) > 0 && !ln.servable())
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

	l.parkBehindLocked(w)
	switch {
	case !w.waits():
		l.wakeLineLocked(ln, wakeBudget)
	case ln.limit == limitInForce && !w.leases(): // which keeps others back, but there are items
		ln.budget, ln.guess = max(ln.budget, w.wanted), true
		l.makeReadyLocked(ln)
	}
}

// queueBehindLocked puts a request that does not wait into the line of its queue, behind a batch that
// pops from it. The next batch looks.
func (l *lane) queueBehindLocked(r *Request, ops []fdbpq.Op) {
	w := newWaiter(r, ops)
	ln := l.joinLocked(w)
	l.parkBehindLocked(w)
	l.wakeLineLocked(ln, wakeBudget)
}

// parkBehindLocked parks a waiter that has not looked, but found others before it.
func (l *lane) parkBehindLocked(w *waiter) {
	w.onlyIfEmpty = false
	l.parkLocked(w)
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
	n := fills(ops)
	if ended := ends(ops); ended > 0 {
		l.noteChangeLocked(ln)
		if ln.limit != limitUnmet {
			ln.limit = limitMet
			n = max(n, ended)
		}
	}

	ln.budget += n
	if n > 0 && !apart && ln.inFlight == 0 && ln.servable() && !l.d.load.keepsTooMuch() {
		l.reserveLocked(b, ln, min(n, max(l.d.options.MaxBatch-len(b.ops)-b.reserved, 1)))
	}
	l.makeReadyLocked(ln)
}

// fills returns how many items the operations can make ready.
func fills(ops []fdbpq.Op) (n int) {
	for i := range ops {
		switch ops[i].Kind {
		case fdbpq.OpRestore, fdbpq.OpMove:
			n++
		case fdbpq.OpPush, fdbpq.OpNak:
			if ops[i].Delay <= 0 { // with Backoff there may be no delay, nor with Op.At
				n++
			}
		}
	}
	return n
}

// ends returns how many leases the operations can end.
func ends(ops []fdbpq.Op) (n int) {
	for i := range ops {
		switch ops[i].Kind {
		case fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpTerm, fdbpq.OpRemove, fdbpq.OpPurge:
			n++
		}
	}
	return n
}

// reserveLocked reserves room in the batch for pops of a line.
func (l *lane) reserveLocked(b *batch, ln *line, pops int) {
	if ln.state != lineReserved {
		if ln.state == lineReady {
			l.mu.ready.remove(ln)
		}
		l.moveLine(ln, lineReserved)
		b.lines = append(b.lines, ln)
	}
	ln.reserved += pops
	b.reserved += pops
	b.bytes += pops * l.popCost()
}

// popCost is about how many bytes a pop adds to a transaction.
func (l *lane) popCost() int { return int(l.popSize.Load()) + opOverhead }

// takeReadyLocked reserves room for the lines that are to be looked at, and leaves half of the
// batch to requests.
func (l *lane) takeReadyLocked(b *batch) {
	if l.d.load.keepsTooMuch() {
		return
	}
	pops := max(l.d.options.MaxBatch/2, 1)
	pops = min(pops, max(l.d.options.MaxBatchBytes/2/l.popCost(), 1))
	for l.mu.ready.n > 0 && b.reserved < pops {
		ln := l.mu.ready.first
		if !ln.servable() {
			// A line without pops must not come into a batch, which could end up empty and would
			// never be answered.
			l.mu.ready.remove(ln)
			l.moveLine(ln, lineQuiet)
			continue
		}
		l.reserveLocked(b, ln, min(ln.budget, pops-b.reserved))
	}
}

// addPopsLocked adds the operations of those that are first in line.
func (l *lane) addPopsLocked(b *batch) {
	now := time.Now()
	for _, ln := range b.lines {
		room := ln.reserved
		ln.attempt = attempt{guess: ln.guess}
		for w := ln.first; w != nil && room > 0; w = w.next {
			if ln.limit == limitInForce && w.state.hasParked() && w.leases() {
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

			l.popBuffer = w.appendPops(append(l.popBuffer[:0], w.acks...), n)
			b.addWaiter(w, l.popBuffer, received)
			room -= n
			ln.attempt.pops += n
		}

		ln.attempt.left = max(ln.budget-ln.attempt.pops, 0)
		ln.budget, ln.guess, ln.reserved = 0, false, 0
		ln.inFlight++
		l.moveLine(ln, lineTrying)
	}
	b.reserved = 0
}

// addWaiter adds operations of a waiter.
func (b *batch) addWaiter(w *waiter, ops []fdbpq.Op, received time.Time) {
	r := Request{Queue: w.request.Queue, Received: received, span: len(ops), waiter: w}
	b.add(&r, ops)
}

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
		l.end(e.waiter, e.why)
	}
}

// errSettles is for requests whose time is up while a batch of unknown outcome is not settled.
var errSettles = fmt.Errorf("%w: the store does not answer, and the request got no item: try again", ErrUnavailable)

// endAttemptLocked decides when the line is looked at next. It takes the waiters that do not wait for
// more out of the line, and appends them to ended.
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
	l.moveLine(ln, lineQuiet)

	switch {
	case f.failed != nil:
		l.lookLocked(ln, l.timers.now()+retryPause)
	case f.empty != nil:
		ln.nothing = f.empty
		if !f.due.IsZero() {
			l.dueLocked(ln, f.due)
		}
		ln.emptied = b.number
		ended = l.removeEndingLocked(ln, f.empty, ended)
	case f.full != nil:
		ln.nothing = leasedError{f.full}
		if !f.due.IsZero() {
			l.dueLocked(ln, f.due)
		}
		ln.noLease = b.number
		ended = l.removeEndingLocked(ln, f.full, ended)
		if ln.budget = 0; ln.servable() { // it has pops without a lease, or a place may be free by now
			ln.budget, ln.guess = wakeBudget, true
		}
	case f.guess || f.stuck != nil:
		switch { // it looks again at once, but those whose time is up need not wait for that
		case errors.Is(f.stuck, fdbpq.ErrEmpty):
			ln.nothing, ln.emptied = f.stuck, b.number
		case errors.Is(f.stuck, fdbpq.ErrMaxLeased):
			ln.nothing, ln.noLease = leasedError{f.stuck}, b.number
		}
		ln.guess = true
		ln.budget = max(ln.budget+f.left, 2*f.pops, wakeBudget)
	default:
		ln.budget += f.left
	}

	l.makeReadyLocked(ln)
	l.dropEmptyLocked(ln)
	return ended
}

// leasedError tells a request that has waited, or whose acknowledgements are done, that it got nothing
// because as many items are leased as max_leased allows.
type leasedError struct{ error }

// Unwrap returns what it is. To whoever has waited, it is as if the queue were empty; and
// fdbpq.ErrMaxLeased alone would mean that the request changed nothing.
func (e leasedError) Unwrap() []error { return []error{fdbpq.ErrEmpty, e.error} }

// withoutPlace returns a leasedError for fdbpq.ErrMaxLeased, and any other error as it is.
func withoutPlace(err error) error {
	if errors.Is(err, fdbpq.ErrMaxLeased) && !errors.Is(err, fdbpq.ErrEmpty) {
		return leasedError{err}
	}
	return err
}

// removeEndingLocked takes requests that wait no longer out of the line if nothing was found for them,
// because of why, and appends them to ended.
func (l *lane) removeEndingLocked(ln *line, why error, ended []ending) []ending {
	for w := ln.last; w != nil && ln.ending > 0; {
		before := w.prev
		if w.ends() && w.lookedLocked() {
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
		ln := l.lineLocked(r.Queue)
		if ln == nil {
			continue
		}
		if due := nextDue(ops, own); !due.IsZero() {
			l.dueLocked(ln, due)
		}
	}
}

// nextDue returns when the first item that the operations hold back falls due; zero if they
// hold none.
func nextDue(ops []fdbpq.Op, results []fdbpq.Result) (due time.Time) {
	for i := range ops {
		at := results[i].Lease.Until
		switch {
		case results[i].Err != nil:
			continue
		case ops[i].Kind == fdbpq.OpNak || ops[i].Kind == fdbpq.OpPush:
			at = results[i].NextDue
		}
		if at.IsZero() {
			continue
		}
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// ring calls Options.Filled for a durable batch, once for each queue.
func (l *lane) ring(b *batch, results []fdbpq.Result) {
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
		if fills(ops) > 0 || has(ops, fdbpq.OpConfigure) || freed(own) || !nextDue(ops, own).IsZero() {
			r.Queue.rung = l.calls.rings
			filled(r.Queue)
		}
	}
}

// freed reports whether one of the operations has made room for a lease.
func freed(results []fdbpq.Result) bool {
	return slices.ContainsFunc(results, func(r fdbpq.Result) bool { return r.Freed })
}

// wakeFilled wakes those who wait for items of the queues that the batch has filled, here and elsewhere.
func (l *lane) wakeFilled(b *batch) {
	for _, q := range l.d.filledQueues(b.pending) {
		q.lane.wakeUnless(q, b)
		if filled := l.d.options.Filled; filled != nil {
			filled(q)
		}
	}
}

// wakeUnless is wakeLine, unless the batch was one of this lane that has itself found all that it brought back.
func (l *lane) wakeUnless(q *Queue, b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lineLocked(q)
	if ln == nil || slices.Contains(b.lines, ln) && ln.emptied == b.number && ln.nothing != nil && !canWait(ln.nothing) {
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
