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

// TurnTime is how long a request may wait, before and after Submit, until it is not run any more.
func TurnTime(requestTimeout time.Duration) time.Duration { return requestTimeout / 4 * 3 }

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

// endOf is when the time of a waiter, or of the batch it is in, is up.
func (l *lane) endOf(w *waiter) time.Duration {
	switch wait := w.request.Wait; {
	case w.state.inBatch():
		return l.answerWaiterBy(w)
	case wait == nil:
		return l.timers.since(w.request.Received) + TurnTime(l.d.options.RequestTimeout)
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
	l.failOverdue(ctx)

	l.mu.Lock()
	batches := slices.Clone(l.mu.inFlight) // none of them ends while calling is held
	l.mu.Unlock()

	// Requests in batches may already have taken items, so the batches put those back when they
	// end.
	now := l.timers.now()
	for _, b := range batches {
		for p := range b.each(nil) {
			if w := p.waiter; w == nil || !w.state.hasParked() { // those have alarms of their own
				l.endLate(p, now)
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

// endLate answers a request in a batch if its time is up.
func (l *lane) endLate(p requestOps, now time.Duration) {
	switch w := p.waiter; {
	case w != nil:
		if l.answerWaiterBy(w) <= now {
			l.answerLate(w)
		}
	case !p.answered && l.answerBy(p.Request) <= now:
		p.answered = true
		p.fail(p.ops, lateError(p.ops))
	}
}

// failOverdue fails the requests whose turn has not come in time, or all requests once ctx has
// ended.
func (l *lane) failOverdue(ctx context.Context) {
	l.mu.Lock()
	over := ctx.Err() != nil
	if over {
		l.mu.ended = l.mu.closed // or a Replier could requeue endlessly
	}
	late := l.takeLateLocked(over)
	l.mu.Unlock()

	for _, r := range late {
		l.refuse(refusal{r, turnError(r.Received)})
	}
}

// takeLateLocked takes the requests whose turn has not come in time out of the backlogs; with all,
// it takes all requests.
func (l *lane) takeLateLocked(all bool) (late []requestOps) {
	by := time.Now()
	if all {
		by = by.Add(l.d.options.RequestTimeout) // no turn is that late
	}
	for _, from := range l.backlogsLocked() {
		some := from.takeLate(by)
		if from == &l.mu.aside {
			for _, r := range some {
				r.Queue.aside.Add(-1)
			}
		}
		late = append(late, some...)
	}

	if len(late) > 0 {
		l.mu.changed.Signal()
	}
	return late
}

// refusal is a request that has left its backlog without a batch, and why it must not run.
type refusal struct {
	requestOps
	why error
}

// refuse fails a request that was not run.
func (l *lane) refuse(r refusal) {
	l.d.release(r.Request)
	r.fail(r.ops, r.why)
}

// isLate reports whether the request should have had its turn by now.
func (r *Request) isLate(now time.Time) bool { return !r.turnBy.After(now) }

// copyOf returns a request that does not change with the backlog it comes from.
func copyOf(r *Request, ops []fdbpq.Op) requestOps {
	queued := *r
	return requestOps{Request: &queued, ops: slices.Clone(ops)}
}

// takeLate removes and returns the requests that should have had their turn by now.
func (w *backlog) takeLate(now time.Time) (late []requestOps) {
	left := w.requests.items[w.requests.head:]
	if !slices.ContainsFunc(left, func(r Request) bool { return r.isLate(now) }) {
		return nil
	}

	var others backlog
	for r, ops := w.first(); r != nil; r, ops = w.first() {
		if r.isLate(now) {
			late = append(late, copyOf(r, ops))
		} else {
			others.push(r, ops)
		}
		w.pop()
	}

	*w = others
	return late
}
