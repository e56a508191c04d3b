package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A lane answers each request within Options.RequestTimeout, whatever the store does:
//
//	turnTime    A request whose batch has not begun by then fails, and has not run.
//	the rest    The batch may run. After that its context ends, and the batch reports its outcome.
//	graceTime   If the store ignores the context, the timers answer that the outcome is unknown.
//	            What the batch takes goes back to its place once it ends.

// maxGrace is the longest graceTime.
const maxGrace = 250 * time.Millisecond

// turnTime is how long a request may wait for its batch to begin.
func (l *lane) turnTime() time.Duration { return l.d.options.RequestTimeout / 4 * 3 }

// graceTime is how much later than RequestTimeout an answer may come. Half of it is for a batch to
// notice that its time is up.
func (l *lane) graceTime() time.Duration { return min(l.d.options.RequestTimeout/20, maxGrace) }

// pageTime is how long endOverdue waits at most for more requests to answer together.
func (l *lane) pageTime() time.Duration { return l.graceTime() / 4 }

// maxLate is the longest lateTime. Clients, and bridges that forwarded a request, do not wait
// longer after its time is up.
const maxLate = 4 * time.Second

// lateTime is how long a waiter whose time is up may wait for one look at its queue.
func (l *lane) lateTime() time.Duration { return min(l.d.options.RequestTimeout/2, maxLate) }

// answerBy is when a request in a batch is answered at the latest, since the epoch of the timers.
func (l *lane) answerBy(r *Request) time.Duration {
	return l.timers.since(r.Received) + l.d.options.RequestTimeout + l.graceTime()/2
}

// answerWaiterBy is answerBy for a waiter in a batch. In its first batch, a waiter is like any
// other request, unless its time is up earlier.
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

// endOf is when the time of a waiter is up, or that of the batch it is in.
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

// watchOverdueLocked has endOverdue called at a time, or before.
func (l *lane) watchOverdueLocked(at time.Duration) {
	if a := &l.mu.overdue; !a.isSet() || at < a.at {
		l.timers.set(a, at)
	}
}

// endOverdue answers the requests whose time is up, and sets the alarm for the others. The caller
// holds lane.calling.
func (l *lane) endOverdue(ctx context.Context) {
	l.failOverdue(ctx, true)

	l.mu.Lock()
	batches := slices.Clone(l.mu.inFlight) // none of them ends while calling is held
	l.mu.Unlock()

	// Requests in batches may already have taken items, so the batches put those back when they
	// end.
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

// failOverdue fails the requests whose turn has not come in time, or all requests once ctx has
// ended. Unless all is set, it may leave some behind requests that still have time.
func (l *lane) failOverdue(ctx context.Context, all bool) {
	l.mu.Lock()
	over := ctx.Err() != nil
	if over {
		l.mu.ended = l.mu.closed // or a Replier could requeue endlessly
	}
	late := l.takeLateLocked(over, all)
	l.mu.Unlock()
	l.failLate(late, nil)
}

// takeLateLocked takes the requests whose turn has not come in time out of the backlogs; with any,
// it takes all requests.
func (l *lane) takeLateLocked(any, all bool) (late []lateRequest) {
	by := time.Now()
	if any {
		by = by.Add(l.d.options.RequestTimeout) // no turn is that late
	}
	for _, from := range l.backlogsLocked() {
		some := from.takeLate(by, any || all)
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

// failLate fails requests that are in no backlog any more. Without err, they have waited too long.
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

// lateRequest is a request that was removed from a backlog, with its operations.
type lateRequest struct {
	Request
	ops []fdbpq.Op
}

// takeLate removes and returns the requests that should have had their turn by now. Unless all is
// set, it may leave some behind requests that still have time.
func (w *backlog) takeLate(now time.Time, all bool) (late []lateRequest) {
	left := w.requests.items[w.requests.head:]
	isLate := func(r Request) bool { return !r.turnBy.After(now) }
	if all && !slices.ContainsFunc(left, isLate) {
		return nil
	}

	var others backlog
	for r, ops := w.first(); r != nil; r, ops = w.first() {
		switch {
		case isLate(*r):
			late = append(late, lateRequest{*r, slices.Clone(ops)})
		case all:
			others.push(r, ops)
		default:
			return late
		}
		w.pop()
	}

	*w = others
	return late
}
