package dispatch

import (
	"context"
	"time"
)

// noteInFlightLocked has the timers answer the requests of a batch that takes too long.
func (l *lane) noteInFlightLocked(b *batch) {
	l.mu.inFlight = append(l.mu.inFlight, b)
	if l.setOverdue(b) {
		l.watchOverdueLocked(b.overdue)
	}
}

// setOverdue finds out when the first of the requests that are not answered yet has to be. It
// returns false if there are none, but for waiters with alarms of their own.
func (l *lane) setOverdue(b *batch) (any bool) {
	for i := range b.requests {
		if r := &b.requests[i]; r.watched() {
			if at := l.answerInBatchBy(r); !any || at < b.overdue {
				b.overdue, any = at, true
			}
		}
	}
	return any
}

// watched reports whether a request in a batch is one that endOverdue sees to.
func (r *Request) watched() bool {
	if w := r.waiter; w != nil {
		return !w.state.hasParked() && !w.answered
	}
	return !r.answered
}

// endOverdue answers the requests whose time is up, and sets the alarm for the next. The caller may
// call the Repliers.
func (l *lane) endOverdue(ctx context.Context) {
	l.failOverdue(ctx, true)
	l.mu.Lock()
	batches := append([]*batch(nil), l.mu.inFlight...) // they end only when calling is free
	l.mu.Unlock()

	// Those that are in batches may have been taken; their batches say so when they end.
	now := l.timers.now()
	var next time.Duration
	for _, b := range batches {
		for r, ops := range b.each() {
			if r.watched() && l.answerInBatchBy(r) <= now && l.mayAnswer(ops) {
				if r.waiter != nil {
					l.answerLate(r.waiter)
					continue
				}
				r.answered = true
				r.fail(ops, lateError(ops))
			}
		}
		if l.setOverdue(b) && (next == 0 || b.overdue < next) {
			next = b.overdue
		}
	}

	// The next alarm is for the first of them, or of those that wait for a batch.
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, waiting := range l.backlogsLocked() {
		if waiting.len() == 0 {
			continue
		}
		if at := l.timers.since(waiting.firstTurn()); next == 0 || at < next {
			next = at
		}
	}
	if next > 0 && !l.mu.ended {
		l.watchOverdueLocked(max(next, now+l.pageTime()))
	}
}

// failOverdue fails the requests that have waited too long, and all of them once ctx has ended.
// Unless all is set, it leaves some that are not first.
func (l *lane) failOverdue(ctx context.Context, all bool) {
	now := time.Now()
	l.mu.Lock()
	over := ctx.Err() != nil
	if over {
		l.mu.ended = l.mu.closed // else a Replier could requeue endlessly
	}

	var late []lateRequest
	for _, waiting := range l.backlogsLocked() {
		by := now
		if over {
			by = waiting.latest
		}
		some := waiting.takeLate(by, all || over)
		if waiting == &l.mu.aside && len(some) > 0 {
			for i := range some {
				some[i].Queue.aside.Add(-1)
			}
		}
		late = append(late, some...)
	}
	if len(late) > 0 {
		l.mu.changed.Signal()
	}
	l.mu.Unlock()

	for i := range late {
		r := &late[i].Request
		l.d.release(r)
		r.fail(late[i].ops, turnError(r.Received))
	}
}
