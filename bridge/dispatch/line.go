package dispatch

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// line is the requests that wait for items of one queue, at either end. They are served in
// the order in which they came.
//
// While there is a line, the queue was empty when it was last looked at, or the line has a
// budget, which says that it is to be looked at again. A batch has operations of the
// first waiters only, and as long as it is in flight no other batch pops from the queue, so
// nobody is overtaken.
//
// The lane's lock guards a line, except as stated.
type line struct {
	queue       *Queue
	first, last *waiter
	waiters     int
	ending      int // of them: see waiter.ends
	leases      int // of them

	// budget is how many pops the next batch should have: as many as items may be there.
	budget int
	// unsure says that the budget is a guess, so there may be more.
	unsure bool

	ready    bool // in lane.mu.ready
	reserved int  // pops in the batch that is being made
	inFlight int  // batches in flight that have its operations
	attempt  attempt

	// limited says that a lease has met the max_leased of the queue, so that the end of another may
	// serve the line. atLimit says the same of the last attempt: until something changes, batches leave
	// out the leases. freed says that something changed since the last attempt was made.
	limited, atLimit, freed bool

	// emptied is the number of the last batch that found nothing, noLease that of the last one that
	// found nothing to lease.
	emptied, noLease int64

	failed  error // why its last attempt failed; nil if it did not
	nothing error // why its last attempt found nothing, or nothing so far: fdbpq.ErrEmpty, or nil, or an error that wraps it
	alarm   alarm // when to look again
}

// attempt is what the batches in flight have found out for a line. It belongs to whoever may
// call the Repliers.
type attempt struct {
	pops   int
	left   int // of the budget
	unsure bool
	failed error
	empty  error     // why a pop found nothing; nil if none did
	stuck  error     // why a pop failed in another way
	full   error     // why a lease found that too many items are leased
	due    time.Time // when the next item falls due; zero if none does
}

// note records the result of a pop that found nothing.
func (f *attempt) note(r *fdbpq.Result) {
	switch {
	case canWait(r.Err):
		f.stuck = r.Err
	case errors.Is(r.Err, fdbpq.ErrEmpty):
		f.empty = r.Err
		f.due = r.NextDue // that of the last pop is the most recent
	case errors.Is(r.Err, fdbpq.ErrMaxLeased):
		f.full, f.due = r.Err, r.NextDue
	default:
		f.stuck = r.Err
	}
}

// lineKey names a queue. There may be two Queue objects for it for a while, if the registry
// has forgotten the first.
type lineKey struct {
	kind subjects.Kind
	name string
}

func (q *Queue) lineKey() lineKey { return lineKey{q.Kind, q.Name} }

const (
	// wakeBudget is how many pops look for an unknown number of items at first.
	wakeBudget = 16
	// retryPause is how long a line waits after an attempt that failed.
	retryPause = time.Second
)

// lineLocked returns the line of a queue, nil if there is none. It is cheap while nobody
// waits in the lane.
func (l *lane) lineLocked(q *Queue) *line {
	if len(l.mu.lines) == 0 {
		return nil
	}
	return l.mu.lines[q.lineKey()]
}

// joinLocked puts a waiter at the end of the line of its queue.
func (l *lane) joinLocked(w *waiter) *line {
	q := w.request.Queue
	ln := l.lineLocked(q)
	if ln == nil {
		ln = &line{queue: q}
		ln.alarm.line = ln
		l.mu.lines[q.lineKey()] = ln
		if len(l.mu.lines) == 1 {
			l.timers.wake() // from now on it looks at the clock
		}
	}
	w.line, w.prev = ln, ln.last
	if ln.last == nil {
		ln.first = w
	} else {
		ln.last.next = w
	}
	ln.last = w
	ln.waiters++
	if w.leases() {
		ln.leases++
	}
	w.since = l.mu.batches
	if w.ends() {
		ln.ending++
	}
	return ln
}

// leaveLocked removes a waiter from its line, and the line if it was the last.
func (l *lane) leaveLocked(w *waiter) {
	ln := w.line
	if w.prev == nil {
		ln.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		ln.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.line = nil, nil, nil
	ln.waiters--
	if w.leases() {
		ln.leases--
	}
	l.timers.clear(&w.alarm)
	if w.ends() {
		ln.ending--
	}
	if w.waits() {
		l.d.waiters.Add(-1)
		if w.parked && ln.queue.waiters.Add(-1) == 0 {
			l.noteWaitingLocked(ln.queue)
		}
	}
	l.uncount(w)
	l.dropEmptyLocked(ln)
}

// cancel is Dispatcher.Cancel.
func (l *lane) cancel(wait *Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait.cancelled = true
	w := wait.waiter
	if w == nil {
		return // it leaves when it would park
	}
	w.gone = true // if it is in a batch, it leaves when that is done
	if w.line != nil && !w.inBatch {
		l.leaveGoneLocked(w)
	}
}

// leaveGoneLocked removes a waiter that was cancelled from its line, so that no batch takes more
// items for it, and has runTimers end it.
func (l *lane) leaveGoneLocked(w *waiter) {
	l.leaveLocked(w)
	l.timers.gone = append(l.timers.gone, w)
	l.timers.wake()
}

// dropEmptyLocked removes a line without waiters, once no batch refers to it.
func (l *lane) dropEmptyLocked(ln *line) {
	if ln.waiters > 0 || ln.inFlight > 0 || ln.reserved > 0 || l.mu.lines[ln.queue.lineKey()] != ln {
		return
	}
	delete(l.mu.lines, ln.queue.lineKey())
	l.timers.clear(&ln.alarm)
	if len(l.mu.lines) == 0 {
		l.mu.changed.Signal() // run may be waiting to end
	}
}

// uncount counts the waiter as pending no longer.
func (l *lane) uncount(w *waiter) {
	if w.counted {
		w.counted = false
		l.d.load.release(1, w.request.Size)
	}
}

// parkLocked has a waiter in its line wait until an event or its end. One that was cancelled leaves instead.
func (l *lane) parkLocked(w *waiter) {
	if w.gone {
		l.leaveGoneLocked(w)
		return
	}
	if !w.parked {
		w.parked = true
		if w.waits() {
			l.uncount(w)
			if w.line.queue.waiters.Add(1) == 1 {
				l.noteWaitingLocked(w.line.queue)
			}
			if w.request.Wait.Heartbeat > 0 {
				w.beat = l.timers.now() + w.request.Wait.Heartbeat
			}
		}
	}
	l.timers.set(&w.alarm, l.nextAlarm(w))
	if l.mu.closed {
		l.timers.wake()
	}
}

// nextAlarm is when runTimers has something to do for a parked waiter.
func (l *lane) nextAlarm(w *waiter) time.Duration {
	at := l.endOf(w)
	if w.waits() && w.request.Wait.Heartbeat > 0 {
		at = min(at, w.beat)
	}
	return at
}

// endOf is when the time of a waiter is over.
func (l *lane) endOf(w *waiter) time.Duration {
	switch wait := w.request.Wait; {
	case wait == nil:
		return l.timers.since(w.request.Received) + l.turnTime()
	case w.late:
		return l.timers.at(wait.Until) + l.lateTime()
	default:
		return l.timers.at(wait.Until)
	}
}

// maxLate keeps a late waiter from ending when its client has given up, and the bridge that forwarded it.
const maxLate = 4 * time.Second

// lateTime is how much longer than asked for a request may wait for somebody to look.
func (l *lane) lateTime() time.Duration { return min(l.d.options.RequestTimeout/2, maxLate) }

// lookedLocked reports whether a batch that looked since the waiter came found nothing for it. What
// others found before it came may be wrong by now: another program may have pushed.
func (w *waiter) lookedLocked() bool {
	return w.since <= w.line.emptied || w.leases() && w.since <= w.line.noLease
}

// wakeLineLocked has a line looked at again, because there may be an unknown number of items.
func (l *lane) wakeLineLocked(ln *line, pops int) {
	ln.budget, ln.unsure = max(ln.budget, pops), true
	ln.atLimit, ln.freed = false, true
	l.readyLocked(ln)
}

// servable reports whether a batch can have pops of the line.
func (ln *line) servable() bool { return ln.waiters > 0 && !(ln.atLimit && ln.leases == ln.waiters) }

// readyLocked has the next batch look at the line if it has a budget.
func (l *lane) readyLocked(ln *line) {
	if ln.budget > 0 && ln.servable() && ln.inFlight == 0 && !ln.ready && ln.reserved == 0 {
		ln.ready = true
		l.mu.ready = append(l.mu.ready, ln)
		l.mu.changed.Signal()
	}
}

// wakeLine is Dispatcher.Wake.
func (l *lane) wakeLine(q *Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln := l.lineLocked(q); ln != nil {
		l.wakeLineLocked(ln, wakeBudget)
	}
}

// dueLocked has the line looked at again when an item falls due, or before.
func (l *lane) dueLocked(ln *line, due time.Time) { l.lookLocked(ln, l.timers.due(due)) }

// lookLocked has the line looked at again at the given time since the epoch of the timers, or before.
func (l *lane) lookLocked(ln *line, at time.Duration) {
	if !ln.alarm.isSet() || at < ln.alarm.at {
		l.timers.set(&ln.alarm, at)
	}
}
