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

	state      lineState
	prev, next *line // in lane.mu.ready
	limit      leaseLimit

	// budget is how many pops the next batch should have: as many as items may be there. With guess
	// there may be more.
	budget int
	guess  bool

	reserved int // pops in the batch that is being made
	inFlight int // batches in flight that have its operations
	attempt  attempt
	alarm    alarm // when to look again

	// emptied is the number of the last batch that found nothing, noLease that of the last one that
	// found nothing to lease.
	emptied, noLease int64

	// failed is why the last attempt failed, nil if it did not. nothing is why the last that did not
	// found nothing: fdbpq.ErrEmpty or an error that wraps it; nil if none has.
	failed, nothing error
}

// lineList is the lines that the next batches look at, in order.
type lineList struct {
	first, last *line
	n           int
}

func (s *lineList) push(ln *line) {
	ln.prev, ln.next = s.last, nil
	if s.last == nil {
		s.first = ln
	} else {
		s.last.next = ln
	}
	s.last = ln
	s.n++
}

func (s *lineList) remove(ln *line) {
	if ln.prev == nil {
		s.first = ln.next
	} else {
		ln.prev.next = ln.next
	}
	if ln.next == nil {
		s.last = ln.prev
	} else {
		ln.next.prev = ln.prev
	}
	ln.prev, ln.next = nil, nil
	s.n--
}

// attempt is what the batches in flight have found out for a line. It belongs to whoever may
// call the Repliers.
type attempt struct {
	pops   int
	left   int  // of the budget
	guess  bool // as in line
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
		ln.alarm.of = ln
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
	if w.ends() {
		ln.ending--
	}

	if w.pending() {
		l.d.load.release(1, w.request.Size)
	}
	if w.waits() {
		l.d.waiters.Add(-1)
		if w.state.hasParked() && ln.queue.waiters.Add(-1) == 0 {
			l.noteWaitingLocked(ln.queue)
		}
	}

	l.timers.clear(&w.alarm)
	l.moveWaiter(w, waiterLeft)
	l.dropEmptyLocked(ln)
}

// cancel is Dispatcher.Cancel.
func (l *lane) cancel(wait *Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait.cancelled = true
	// One that has no waiter yet, or is in a batch, leaves when it would park.
	if w := wait.waiter; w != nil && w.line != nil && !w.state.inBatch() {
		l.leaveCancelledLocked(w)
	}
}

// leaveCancelledLocked removes a waiter that was cancelled from its line, so that no batch takes more
// items for it, and has runTimers end it.
func (l *lane) leaveCancelledLocked(w *waiter) {
	l.leaveLocked(w)
	l.mu.cancelled = append(l.mu.cancelled, w)
	l.timers.wake()
}

// dropEmptyLocked removes a line without waiters, once no batch refers to it.
func (l *lane) dropEmptyLocked(ln *line) {
	if ln.waiters > 0 || ln.state != lineQuiet && ln.state != lineReady {
		return
	}
	if ln.state == lineReady {
		l.mu.ready.remove(ln)
	}
	l.moveLine(ln, lineGone)
	delete(l.mu.lines, ln.queue.lineKey())
	l.timers.clear(&ln.alarm)
	if len(l.mu.lines) == 0 {
		l.mu.changed.Signal() // run may be waiting to end
	}
}

// parkLocked has a waiter in its line wait until an event or its end. One that was cancelled leaves instead.
func (l *lane) parkLocked(w *waiter) {
	if w.cancelled() {
		l.leaveCancelledLocked(w)
		return
	}

	switch parks := !w.state.hasParked(); {
	case w.state == waiterLateTrying:
		l.moveWaiter(w, waiterLate)
	default:
		l.moveWaiter(w, waiterParked)
		if parks && w.waits() {
			l.beginWaitLocked(w)
		}
	}
	l.timers.set(&w.alarm, l.nextAlarm(w))
	if l.mu.closed {
		l.timers.wake()
	}
}

// beginWaitLocked counts a request with a Wait as one that waits for items, and as pending no longer.
func (l *lane) beginWaitLocked(w *waiter) {
	l.d.load.release(1, w.request.Size)
	if w.line.queue.waiters.Add(1) == 1 {
		l.noteWaitingLocked(w.line.queue)
	}
	if every := w.request.Wait.Heartbeat; every > 0 {
		w.beat = l.timers.now() + every
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
	case w.state.isLate():
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
	ln.budget, ln.guess = max(ln.budget, pops), true
	ln.limit = min(ln.limit, limitMet)
	l.noteChangeLocked(ln)
	l.makeReadyLocked(ln)
}

// noteChangeLocked records that what the batches in flight find out about a line may be out of date.
func (l *lane) noteChangeLocked(ln *line) {
	if ln.state == lineTrying {
		l.moveLine(ln, lineStale)
	}
}

// servable reports whether a batch can have pops of the line.
func (ln *line) servable() bool {
	return ln.waiters > 0 && !(ln.limit == limitInForce && ln.leases == ln.waiters)
}

// makeReadyLocked has the next batch look at a quiet line if it has a budget.
func (l *lane) makeReadyLocked(ln *line) {
	if ln.state == lineQuiet && ln.budget > 0 && ln.servable() {
		l.moveLine(ln, lineReady)
		l.mu.ready.push(ln)
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
