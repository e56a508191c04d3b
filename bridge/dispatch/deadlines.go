package dispatch

import "time"

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
