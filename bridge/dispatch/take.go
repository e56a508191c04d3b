package dispatch

import (
	"context"
	"errors"
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
