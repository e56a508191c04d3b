package dispatch

import (
	"slices"
	"time"
)

const (
	// wakeBudget is how many pops look for an unknown number of items at first.
	wakeBudget = 16
	// retryPause is how long a line waits after an attempt that failed.
	retryPause = time.Second
)

// joinLocked puts a waiter at the end of the line of its queue.
func (l *lane) joinLocked(w *waiter) *line {
	q := w.request.Queue
	ln := l.lineLocked(q)
	if ln == nil {
		ln = &line{queue: q}
		ln.alarm.of = ln
		l.mu.lines[NameOf(q.Kind, q.Name)] = ln
		if len(l.mu.lines) == 1 {
			l.timers.wake() // from now on it watches the clock
		}
	}

	w.line = ln
	ln.waiters.push(w)
	if w.leases() {
		ln.leases++
	}
	w.joined = l.tickLocked()
	if w.endsWhenEmpty() {
		ln.ending++
	}
	return ln
}

// leaveLocked removes a waiter from its line, and the line if it is empty then.
func (l *lane) leaveLocked(w *waiter) {
	ln := w.line
	ln.waiters.remove(w)
	if w.leases() {
		ln.leases--
	}
	if w.endsWhenEmpty() {
		ln.ending--
	}

	if w.pending() {
		l.d.load.release(1, w.request.Size)
	}
	if w.waits() {
		l.d.waiters.Add(-1)
		if w.state.hasParked() {
			ln.queue.waiters.Add(-1)
		}
	}

	l.timers.clear(&w.alarm)
	l.moveWaiter(w, waiterLeft)
	w.line = nil
	l.dropEmptyLocked(ln)
}

// cancelWait is Dispatcher.Cancel.
func (l *lane) cancelWait(wait *Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()

	wait.cancelled = true

	// A request in no line yet, or in a batch, leaves when it would park.
	if w := wait.waiter; w != nil && w.line != nil && !w.state.inBatch() {
		l.leaveCancelledLocked(w)
	}
}

// leaveCancelledLocked removes a cancelled waiter from its line, so that no batch takes more items
// for it, and has runTimers end it.
func (l *lane) leaveCancelledLocked(w *waiter) {
	l.leaveLocked(w)
	l.mu.cancelled = append(l.mu.cancelled, w)
	l.timers.wake()
}

// dropEmptyLocked removes a line without waiters, once no batch refers to it.
func (l *lane) dropEmptyLocked(ln *line) {
	inBatch := ln.state != lineQuiet && ln.state != lineReady
	if ln.waiters.n > 0 || inBatch {
		return
	}

	l.moveLine(ln, lineGone)
	delete(l.mu.lines, NameOf(ln.queue.Kind, ln.queue.Name))
	l.timers.clear(&ln.alarm)
	if len(l.mu.lines) == 0 {
		l.mu.changed.Signal() // run may be waiting to end
	}
}

// parkLocked has a waiter in its line wait for an event, or for its end. A cancelled waiter leaves
// instead.
func (l *lane) parkLocked(w *waiter) {
	if w.cancelled() {
		l.leaveCancelledLocked(w)
		return
	}

	begins := w.waits() && !w.state.hasParked()
	if w.state == waiterLateTrying {
		l.moveWaiter(w, waiterLate)
	} else {
		l.moveWaiter(w, waiterParked)
	}

	// It counts as one that waits for items from now on, and no longer as pending.
	if begins {
		l.d.load.release(1, w.request.Size)
		if q := w.line.queue; q.waiters.Add(1) == 1 {
			l.d.traffic.list(q)
		}
		if every := w.request.Wait.Heartbeat; every > 0 {
			w.beat = l.timers.now() + every
		}
	}

	l.timers.set(&w.alarm, l.nextAlarm(w))
	if l.mu.closed {
		l.timers.wake()
	}
}

// wakeLineLocked has a line looked at again, because there may be an unknown number of items.
func (l *lane) wakeLineLocked(ln *line, pops int) {
	ln.expect(pops)
	l.noteEventLocked(ln)
	l.makeReadyLocked(ln)
}

// noteEventLocked records that what earlier looks find out about a line may be out of date.
func (l *lane) noteEventLocked(ln *line) { ln.event = l.tickLocked() }

// makeReadyLocked has the next batch look at a quiet line that has a budget. While too much of its
// queue is unconfirmed, the line stays quiet: see wakeRun.
func (l *lane) makeReadyLocked(ln *line) {
	looks := ln.state == lineQuiet && ln.budget > 0 && ln.servable()
	if looks && !l.d.load.tooMuchUnconfirmed(ln.queue) {
		l.moveLine(ln, lineReady)
		l.mu.changed.Signal()
	}
}

// wakeRun makes run check again whether there is something to do, maybe because less is
// unconfirmed.
func (l *lane) wakeRun() {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, ln := range l.mu.lines {
		l.makeReadyLocked(ln)
	}
	l.mu.changed.Signal()
}

// wakeQueues wakes the requests that wait, here and elsewhere, for items of queues that b has
// filled. b is nil if no batch of a lane filled them, or none that is known to have committed.
func wakeQueues(d *shared, queues []*Queue, b *batch) {
	for _, q := range queues {
		q.lane.wakeLine(q, b)
		if filled := d.options.Filled; filled != nil {
			filled(q)
		}
	}
}

// wakeLine wakes the line of a queue, unless batch b itself has looked at it and found everything.
// b may be nil.
func (l *lane) wakeLine(q *Queue, b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()

	ln := l.lineLocked(q)
	if ln == nil {
		return
	}

	foundAll := b != nil && slices.Contains(b.lines, ln) && ln.emptied == b.look
	if !foundAll {
		l.wakeLineLocked(ln, wakeBudget)
	}
}

// lookWhenDueLocked has the line looked at again when an item falls due, or before. A zero time is
// no item.
func (l *lane) lookWhenDueLocked(ln *line, due time.Time) {
	if !due.IsZero() {
		l.lookByLocked(ln, l.timers.due(due))
	}
}

// lookByLocked has the line looked at again at a time since the epoch of the timers, or before.
func (l *lane) lookByLocked(ln *line, at time.Duration) {
	if !ln.alarm.isSet() || at < ln.alarm.at {
		l.timers.set(&ln.alarm, at)
	}
}

// moveWaiter changes the state of a waiter. The lane's lock is held.
func (l *lane) moveWaiter(w *waiter, to waiterState) {
	if l.waiterMoved != nil {
		l.waiterMoved(w.state, to)
	}
	if c := w.credits(); c != nil && w.state.isIdle() != to.isIdle() {
		c.countLocked(w.line, to.isIdle())
	}
	w.state = to
}

// moveLine changes the state of a line, and with it whether it is in lane.mu.ready. The lane's lock
// is held.
func (l *lane) moveLine(ln *line, to lineState) {
	if l.lineMoved != nil {
		l.lineMoved(ln.state, to)
	}
	if ln.state == lineReady {
		l.mu.ready.remove(ln)
	}
	if to == lineReady {
		l.mu.ready.push(ln)
	}
	ln.state = to
}
