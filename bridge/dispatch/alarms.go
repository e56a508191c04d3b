package dispatch

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// timerWork is what runTimers found to do.
type timerWork struct {
	beats   []*waiter     // get a heartbeat
	ended   []ending      // have left their lines
	late    []*waiter     // their time is up while they are in a batch
	overdue bool          // the time of other requests may be up
	waiting bool          // some request waits for items
	next    time.Duration // the next alarm, 0 if there is none
	more    bool          // there is more to do now
}

// timerPage is how many waiters runTimers ends at most before it lets others go on.
const timerPage = 1024

// runTimers is the goroutine of the timers. It returns once the lane has ended.
func (l *lane) runTimers(ctx context.Context) {
	defer context.AfterFunc(ctx, l.timers.wake)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ended := false; !ended; {
		select {
		case <-timer.C:
		case <-l.timers.woken:
		case <-l.ended:
			ended = true
		}

		work := timerWork{more: true}
		for work.more {
			work = l.runTimersOnce(ctx)
		}

		// While a request waits, the clock by which items fall due is watched too.
		next := work.next - l.timers.now()
		if work.waiting && (work.next == 0 || next > watchEvery) {
			next = watchEvery
		}
		if work.waiting || work.next > 0 {
			timer.Reset(next)
		}
	}
}

// runTimersOnce does the work that is due now, up to a page of it.
func (l *lane) runTimersOnce(ctx context.Context) timerWork {
	l.calling.Lock()
	defer l.calling.Unlock()
	l.mu.Lock()
	work := l.findWorkLocked(ctx)
	l.mu.Unlock()

	for _, w := range work.beats {
		if replier, ok := w.request.Replier.(WaitingReplier); ok {
			replier.Heartbeat(&w.request, w.wanted)
		}
	}

	for _, e := range work.ended {
		l.endWaiter(e.waiter, e.why)
	}
	for _, w := range work.late {
		l.answerLate(w)
	}

	if work.overdue {
		l.endOverdue(ctx)
		work.more = true // it has set another alarm
	}

	return work
}

// findWorkLocked collects the work that is due now, and takes waiters that end out of their lines.
func (l *lane) findWorkLocked(ctx context.Context) (work timerWork) {
	if l.mu.closed || ctx.Err() != nil {
		l.closeLinesLocked(ctx, &work)
	}

	for _, w := range l.mu.cancelled {
		work.ended = append(work.ended, ending{w, ErrCancelled})
	}
	l.mu.cancelled = nil

	if work.waiting = len(l.mu.lines) > 0; work.waiting && l.timers.clocksParted() {
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
		case *lane:
			l.mu.lazyDue = l.mu.backlog.lazy > 0
			l.mu.changed.Signal()
		default:
			work.overdue = true
		}

		found := len(work.ended) + len(work.beats) + len(work.late)
		work.more = work.more || found >= timerPage
	}

	return work
}

// alarmLocked handles the alarm of a waiter.
func (l *lane) alarmLocked(w *waiter, now time.Duration, work *timerWork) {
	switch {
	case l.endOf(w) > now: // a heartbeat
	case w.state.inBatch():
		work.late = append(work.late, w)
		return // the batch ends it

	// Without credits it gets nothing, whatever the queue has.
	case w.blocked():
		l.leaveToEndLocked(w, work, fdbpq.ErrEmpty)
		return

	case w.endsWhenEmpty():
		l.leaveToEndLocked(w, work, turnError(w.request.Received))
		return
	case w.line.failed != nil:
		l.leaveToEndLocked(w, work, w.line.failed)
		return
	case w.lookedLocked():
		l.leaveToEndLocked(w, work, w.line.nothing)
		return

	// No batch has looked since it came, so it gets one look before it ends.
	default:
		l.moveWaiter(w, waiterLate)
		w.line.ending++
		l.wakeLineLocked(w.line, w.wanted)
	}

	if wait := w.request.Wait; wait != nil && wait.Heartbeat > 0 && w.beat <= now {
		work.beats = append(work.beats, w)
		w.beat = now + wait.Heartbeat
	}
	l.timers.set(&w.alarm, l.nextAlarm(w))
}

// leaveToEndLocked has a waiter leave its line, and runTimersOnce end it, for why: see ending.
func (l *lane) leaveToEndLocked(w *waiter, work *timerWork, why error) {
	work.ended = append(work.ended, ending{w, why})
	l.leaveLocked(w)
}

// closeLinesLocked ends the waiters of a lane that was closed: those with a Wait, and all of them
// once ctx has ended. It stops after a page.
func (l *lane) closeLinesLocked(ctx context.Context, work *timerWork) {
	for _, ln := range l.mu.lines {
		for w := ln.waiters.first; w != nil; {
			next := w.next
			if w.state.isIdle() && (w.waits() || ctx.Err() != nil) {
				l.leaveToEndLocked(w, work, errClosed)
			}
			w = next

			if len(work.ended) >= timerPage {
				work.more = true
				return
			}
		}
	}
}

// lookAgainLocked wakes the lines that wait for the clock, because it was set.
func (l *lane) lookAgainLocked() {
	for _, ln := range l.mu.lines {
		if ln.alarm.isSet() {
			l.timers.clear(&ln.alarm)
			l.wakeLineLocked(ln, wakeBudget)
		}
	}
}
