package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A lane answers each request within Options.RequestTimeout, whatever the store does. A request whose
// batch has not begun by turnTime has not run; batches that have begun get the rest of the time. When
// that is over, the context of the batch ends, and the batch reports what became of it. If the store
// ignores its context, the timers answer within graceTime that the outcome is unknown, and what the
// batch has taken returns to its place once it ends.

// maxGrace is the longest graceTime.
const maxGrace = 250 * time.Millisecond

// turnTime is how long a request may wait for its batch to begin.
func (l *lane) turnTime() time.Duration { return l.d.options.RequestTimeout / 4 * 3 }

// graceTime is how much later than RequestTimeout an answer may come. A batch has half of it to
// notice that its time is over.
func (l *lane) graceTime() time.Duration { return min(l.d.options.RequestTimeout/20, maxGrace) }

// pageTime is how long endOverdue waits at most for more requests to answer together.
func (l *lane) pageTime() time.Duration { return l.graceTime() / 4 }

// maxLate keeps a late waiter from ending when its client has given up, and the bridge that
// forwarded it.
const maxLate = 4 * time.Second

// lateTime is how much longer than asked for a request may wait for somebody to look.
func (l *lane) lateTime() time.Duration { return min(l.d.options.RequestTimeout/2, maxLate) }

// answerBy is when a request in a batch is answered at the latest, since the epoch of the timers.
func (l *lane) answerBy(r *Request) time.Duration {
	return l.timers.since(r.Received) + l.d.options.RequestTimeout + l.graceTime()/2
}

// answerWaiterBy is answerBy for a waiter in a batch. Until it has looked once, it is as any other
// request, unless its time is over before.
func (l *lane) answerWaiterBy(w *waiter) time.Duration {
	if !w.waits() {
		return l.answerBy(&w.request)
	}
	last := l.timers.at(w.request.Wait.Until) + l.lateTime()
	if w.state.hasParked() {
		return last
	}
	return min(l.answerBy(&w.request), last-l.pageTime())
}

// endOf is when the time of a waiter is over, or of the batch that it is in.
func (l *lane) endOf(w *waiter) time.Duration {
	switch wait := w.request.Wait; {
	case w.state.inBatch():
		return l.answerWaiterBy(w)
	case wait == nil:
		return l.timers.since(w.request.Received) + l.turnTime()
	case w.state.isLate():
		return l.timers.at(wait.Until) + l.lateTime()
	default:
		return l.timers.at(wait.Until)
	}
}

// nextAlarm is when runTimers has something to do for a waiter.
func (l *lane) nextAlarm(w *waiter) time.Duration {
	at := l.endOf(w)
	if w.waits() && w.request.Wait.Heartbeat > 0 {
		at = min(at, w.beat)
	}
	return at
}

func (l *lane) watchOverdueLocked(at time.Duration) {
	if a := &l.mu.overdue; !a.isSet() || at < a.at {
		l.timers.set(a, at)
	}
}

// takeLate removes and returns the requests that should have had their turn by now. Unless all is
// set, it may leave some that have others in front of them.
func (w *backlog) takeLate(now time.Time, all bool) (late []lateRequest) {
	take := func() {
		r, ops := w.first()
		late = append(late, lateRequest{*r, slices.Clone(ops)})
		w.pop()
	}

	isLate := func(r *Request) bool { return r != nil && !r.turnBy.After(now) }
	for r, _ := w.first(); isLate(r); r, _ = w.first() {
		take()
	}

	if !all || !w.hasLate(now) {
		return late
	}

	// Some are behind others that still have time.
	var others backlog
	for r, ops := w.first(); r != nil; r, ops = w.first() {
		if isLate(r) {
			take()
		} else {
			others.push(r, ops)
			w.pop()
		}
	}
	*w = others
	return late
}

// hasLate reports whether some request should have had its turn by now.
func (w *backlog) hasLate(now time.Time) bool {
	left := w.requests.items[w.requests.head:]
	for i := range left {
		if !left[i].turnBy.After(now) {
			return true
		}
	}
	return false
}

// lateRequest is a request that was removed, with its operations.
type lateRequest struct {
	Request
	ops []fdbpq.Op
}

// endOverdue answers the requests whose time is up, and has the timers look again as long as there
// are others. The caller may call the Repliers.
func (l *lane) endOverdue(ctx context.Context) {
	l.failOverdue(ctx, true)
	l.mu.Lock()
	batches := slices.Clone(l.mu.inFlight) // they end only when calling is free
	l.mu.Unlock()

	// Those that are in batches may have been taken; their batches say so when they end.
	now := l.timers.now()
	for _, b := range batches {
		for r, ops := range b.each() {
			w := r.waiter
			switch {
			case w != nil && w.state.hasParked(): // it has an alarm of its own
			case w != nil:
				if l.answerWaiterBy(w) <= now {
					l.answerLate(w)
				}
			case !r.answered && l.answerBy(r) <= now:
				r.answered = true
				r.fail(ops, lateError(ops))
			}
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.mu.returns.len() + l.mu.backlog.len() + l.mu.aside.len() + len(l.mu.inFlight)
	if waiting > 0 && !l.mu.ended {
		l.watchOverdueLocked(now + l.pageTime())
	}
}

// failOverdue fails the requests that have waited too long, and all of them once ctx has ended.
// Unless all is set, it leaves some that are not first.
func (l *lane) failOverdue(ctx context.Context, all bool) {
	l.mu.Lock()
	over := ctx.Err() != nil
	if over {
		l.mu.ended = l.mu.closed // else a Replier could requeue endlessly
	}
	late := l.takeLateLocked(over, all)
	l.mu.Unlock()
	l.failLate(late, nil)
}

// takeLateLocked takes the requests that have waited too long out of the backlogs, or whatever is
// there.
func (l *lane) takeLateLocked(whatever, all bool) (late []lateRequest) {
	now := time.Now()
	for _, from := range l.backlogsLocked() {
		by := now
		if whatever {
			by = from.latest
		}
		some := from.takeLate(by, whatever || all)
		if from == &l.mu.aside {
			for i := range some {
				some[i].Queue.aside.Add(-1)
			}
		}
		late = append(late, some...)
	}
	if len(late) > 0 {
		l.mu.changed.Signal()
	}
	return late
}

// failLate fails requests that are in no backlog any more; a nil err says that they have waited too
// long.
func (l *lane) failLate(late []lateRequest, err error) {
	for i := range late {
		r, why := &late[i].Request, err
		if why == nil {
			why = turnError(r.Received)
		}
		l.d.release(r)
		r.fail(late[i].ops, why)
	}
}
