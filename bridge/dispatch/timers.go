package dispatch

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// timers does what a lane has to do at a certain time rather than on request: it ends waiters,
// sends heartbeats and has lines looked at. It has one goroutine and one timer, and neither
// does anything while there is nothing to do.
type timers struct {
	epoch    time.Time
	woken    chan struct{}
	storeNow func() time.Time // the clock by which items fall due

	alarms alarms // guarded by the lane's lock
}

// calls is held by whoever calls Repliers of requests that wait, or of requests that have
// run. So calls for one queue come one at a time. It has room for arguments.
type calls struct {
	ops     []fdbpq.Op
	results []fdbpq.Result
	rings   int64 // of ring, so far
}

// forget frees what the arguments of a call refer to.
func (c *calls) forget() {
	clear(c.ops)
	clear(c.results)
}

// timerPage is how many waiters runTimers ends at most before it lets others go on.
const timerPage = 1024

func newTimers() timers {
	return timers{epoch: time.Now(), woken: make(chan struct{}, 1), storeNow: time.Now}
}

// now returns the time since the timers were made.
func (s *timers) now() time.Duration { return time.Since(s.epoch) }

// at returns the time since the timers were made for a time.
func (s *timers) at(t time.Time) time.Duration { return s.now() + time.Until(t) }

// since returns the time from when the timers were made to a time that time.Now returned.
func (s *timers) since(t time.Time) time.Duration { return t.Sub(s.epoch) }

// due is at for a time from the store, which is by the clock by which items fall due.
func (s *timers) due(t time.Time) time.Duration { return s.now() + t.Sub(s.storeNow()) }

// wake makes runTimers look for something to do.
func (s *timers) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// set sets an alarm, or sets it to another time.
func (s *timers) set(a *alarm, at time.Duration) {
	a.at = at
	if a.isSet() {
		heap.Fix(&s.alarms, a.index-1)
	} else {
		heap.Push(&s.alarms, a)
	}
	if a.index == 1 {
		s.wake()
	}
}

// clear clears an alarm, if it is set.
func (s *timers) clear(a *alarm) {
	if a.isSet() {
		heap.Remove(&s.alarms, a.index-1)
	}
}

// noteWaitingLocked has Options.Waiting called if the first waiter of the queue has come, or
// the last one has left.
func (l *lane) noteWaitingLocked(q *Queue) {
	if l.d.options.Waiting != nil {
		l.mu.waitingChanged = append(l.mu.waitingChanged, q)
		l.timers.wake()
	}
}

// ending is a waiter that has left its line to end, and why: nil, or an error that wraps fdbpq.ErrEmpty, if there
// is nothing for it.
type ending struct {
	waiter *waiter
	why    error
}

// timerWork is what runTimers found to do.
type timerWork struct {
	waitingChanged []*Queue
	beats          []*waiter
	ended          []ending
	late           []*waiter // whose time is up while they are in a batch
	overdue        bool      // the time of others is up, or nearly
	waiting        bool      // somebody waits
	next           time.Duration
	more           bool // there is more to do now
}

// runTimers is the goroutine of the timers. It returns once the lane has ended.
func (l *lane) runTimers(ctx context.Context) {
	defer context.AfterFunc(ctx, l.timers.wake)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case <-timer.C:
		case <-l.timers.woken:
		case <-l.over:
			over = true
		}
		work := timerWork{more: true}
		for work.more {
			work = l.runTimersOnce(ctx)
		}
		next := work.next - l.timers.now()
		if work.waiting && (work.next == 0 || next > watchEvery) {
			next = watchEvery
		}
		if work.waiting || work.next > 0 {
			timer.Reset(next)
		}
	}
}

func (l *lane) runTimersOnce(ctx context.Context) timerWork {
	l.calling.Lock()
	defer l.calling.Unlock()
	l.mu.Lock()
	work := l.findWorkLocked(ctx)
	l.mu.Unlock()
	for _, q := range work.waitingChanged {
		if is := q.Waiters() > 0; is != q.toldWaiting {
			q.toldWaiting = is
			l.d.options.Waiting(q, is)
		}
	}
	for _, w := range work.beats {
		if replier, ok := w.request.Replier.(WaitingReplier); ok {
			replier.Heartbeat(&w.request, w.wanted)
		}
	}
	for _, e := range work.ended {
		l.end(e.waiter, e.why)
	}
	for _, w := range work.late {
		l.answerLate(w)
	}
	if work.overdue {
		l.endOverdue(ctx)
		work.more = true // there is another time to wait for
	}
	return work
}

// findWorkLocked collects what is to be done now, and takes those that are to be ended out
// of their lines.
func (l *lane) findWorkLocked(ctx context.Context) (work timerWork) {
	work.waitingChanged, l.mu.waitingChanged = l.mu.waitingChanged, nil
	if l.mu.closed || ctx.Err() != nil {
		l.closeLinesLocked(ctx, &work)
	}
	for _, w := range l.mu.cancelled {
		work.ended = append(work.ended, ending{w, ErrCancelled})
	}
	l.mu.cancelled = nil
	if work.waiting = len(l.mu.lines) > 0; work.waiting && l.watch.parted() {
		l.lookAgainLocked()
	}
	now := l.timers.now()
	for len(l.timers.alarms) > 0 && !work.more {
		a := l.timers.alarms[0]
		if a.at > now {
			work.next = a.at
			break
		}
		l.timers.clear(a)
		switch of := a.of.(type) {
		case *line:
			l.wakeLineLocked(of, wakeBudget)
		case *waiter:
			l.alarmLocked(of, now, &work)
		default:
			work.overdue = true
		}
		work.more = work.more || len(work.ended)+len(work.beats)+len(work.late) >= timerPage
	}
	return work
}

// alarmLocked handles the alarm of a waiter.
func (l *lane) alarmLocked(w *waiter, now time.Duration, work *timerWork) {
	at := l.endOf(w)
	if w.state.inBatch() {
		at = l.limitOf(w)
	}
	switch {
	case at > now:
	case w.state.inBatch():
		work.late = append(work.late, w)
		return // the batch ends it
	default:
		switch {
		case w.ends() && canWait(w.line.nothing) && w.lookedLocked():
			l.endLocked(w, work, w.line.nothing)
			return
		case w.ends():
			l.endLocked(w, work, fmt.Errorf("%w: the request waited %v for its turn and was not run: try again",
				ErrUnavailable, time.Since(w.request.Received).Round(time.Millisecond)))
			return
		case w.line.failed != nil || w.lookedLocked():
			l.endLocked(w, work, cmp.Or(w.line.failed, w.line.nothing))
			return
		}
		l.moveWaiter(w, waiterLate)
		w.line.ending++
		l.wakeLineLocked(w.line, w.wanted)
	}
	if wait := w.request.Wait; wait != nil && wait.Heartbeat > 0 && w.beat <= now {
		work.beats = append(work.beats, w)
		w.beat = now + wait.Heartbeat
	}
	if w.state.inBatch() { // whose end sets the alarm again
		if w.waits() && w.request.Wait.Heartbeat > 0 {
			at = min(at, w.beat)
		}
		l.timers.set(&w.alarm, at)
		return
	}
	l.timers.set(&w.alarm, l.nextAlarm(w))
}

// endLocked has a waiter end, with err unless that is nil.
func (l *lane) endLocked(w *waiter, work *timerWork, err error) {
	work.ended = append(work.ended, ending{w, err})
	l.leaveLocked(w)
}

// closeLinesLocked ends what waits in a lane that was closed: requests with a Wait, and
// once ctx has ended all of them.
func (l *lane) closeLinesLocked(ctx context.Context, work *timerWork) {
	for _, ln := range l.mu.lines {
		for w := ln.first; w != nil; {
			next := w.next
			if !w.state.inBatch() && w.state.hasParked() && (w.waits() || ctx.Err() != nil) {
				l.endLocked(w, work, errClosed)
			}
			w = next
			if len(work.ended) >= timerPage {
				work.more = true
				return
			}
		}
	}
}

// alarm is a time at which runTimers looks at a waiter or a line, or at what is in flight.
type alarm struct {
	at    time.Duration // since the epoch of the timers
	index int           // in alarms, from 1; 0 if it is not set
	of    any           // *waiter or *line; nil for what is in flight
}

func (a *alarm) isSet() bool { return a.index > 0 }

// alarms is a heap of those that are set, the first to go off in front.
type alarms []*alarm

// Len implements heap.Interface.
func (s alarms) Len() int { return len(s) }

// Less implements heap.Interface.
func (s alarms) Less(i, j int) bool { return s[i].at < s[j].at }

// Swap implements heap.Interface.
func (s alarms) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (s *alarms) Push(a any) {
	*s = append(*s, a.(*alarm))
	(*s)[len(*s)-1].index = len(*s)
}

// Pop implements heap.Interface.
func (s *alarms) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	a.index = 0
	return a
}
