package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// This file keeps Options.RequestTimeout: the timers of a lane answer what nothing else answers in
// time, whatever the store does.
//
// A request whose batch has not begun by turnTime is answered without having run, which leaves the
// batches that do begin the rest of the time. A batch whose time is over ends with its context, and
// says exactly what became of it. A store may overlook that the context has ended; so graceTime
// later the requests in the batch are answered all the same, and nobody knows what becomes of them.
// What the batch has taken for them then goes back to its place once it ends.

// maxGrace is the longest graceTime.
const maxGrace = 250 * time.Millisecond

// turnTime is how long a request may wait for its batch to begin.
func (l *lane) turnTime() time.Duration { return l.d.options.RequestTimeout / 4 * 3 }

// graceTime is how long a batch may take to notice that its time is over.
func (l *lane) graceTime() time.Duration { return min(l.d.options.RequestTimeout/20, maxGrace) }

// limitOf is when a waiter in a batch is answered at the latest, since the epoch of the timers. Until it
// has looked once, it is as any other request.
func (l *lane) limitOf(w *waiter) time.Duration {
	limit := l.timers.since(w.request.Received) + l.d.options.RequestTimeout + l.graceTime()
	switch last := l.timers.at(w.lastMoment()) + l.lateTime(); {
	case !w.waits():
		return limit
	case w.parked:
		return last
	default:
		return min(limit, last)
	}
}

// lastMoment is Wait.Until, if the waiter has one.
func (w *waiter) lastMoment() time.Time {
	if w.waits() {
		return w.request.Wait.Until
	}
	return w.request.Received
}

// pushLocked adds a request to the backlog.
func (l *lane) pushLocked(r *Request, ops []fdbpq.Op) {
	l.mu.backlog.push(r, ops)
	l.watchOverdueLocked(l.timers.since(r.Received) + l.turnTime())
}

// noteInFlightLocked has the timers answer the requests of a batch that takes too long.
func (l *lane) noteInFlightLocked(b *batch) {
	l.mu.inFlight = append(l.mu.inFlight, b)
	if l.setOverdue(b) {
		l.watchOverdueLocked(b.overdue)
	}
}

func (l *lane) watchOverdueLocked(at time.Duration) {
	if a := &l.mu.overdue; !a.isSet() || at < a.at {
		l.timers.set(a, at)
	}
}

// setOverdue finds out when the first of the requests that are not answered yet has to be. It returns false
// if there are none, but for waiters with alarms of their own.
func (l *lane) setOverdue(b *batch) (any bool) {
	for i := range b.requests {
		if r := &b.requests[i]; l.watches(r) {
			if at := l.limitIn(r); !any || at < b.overdue {
				b.overdue, any = at, true
			}
		}
	}
	return any
}

// watches reports whether a request in a batch is one that endOverdue sees to.
func (l *lane) watches(r *Request) bool {
	if w := r.waiter; w != nil {
		return !w.parked && !w.ended
	}
	return !r.late
}

// limitIn is limitOf for a request in a batch.
func (l *lane) limitIn(r *Request) time.Duration {
	if r.waiter != nil {
		return l.limitOf(r.waiter)
	}
	return l.timers.since(r.Received) + l.d.options.RequestTimeout + l.graceTime()
}

// endOverdue answers the requests whose time is up, and sets the alarm for the next. The caller may call
// the Repliers.
func (l *lane) endOverdue(ctx context.Context) {
	l.expire(ctx, true)
	l.mu.Lock()
	batches := append([]*batch(nil), l.mu.inFlight...) // they end only when calling is free
	l.mu.Unlock()

	now := l.timers.now()
	var next time.Duration
	for _, b := range batches {
		for r, ops := range b.each() {
			if l.watches(r) && l.limitIn(r) <= now && l.mayAnswer(ops) {
				if r.waiter != nil {
					l.answerLate(r.waiter)
					continue
				}
				r.late = true
				r.fail(ops, lateError(ops))
			}
		}
		if l.setOverdue(b) && (next == 0 || b.overdue < next) {
			next = b.overdue
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.backlog.len() > 0 {
		if at := l.timers.since(l.mu.backlog.oldest()) + l.turnTime(); next == 0 || at < next {
			next = at
		}
	}
	if next > 0 && !l.mu.ended {
		l.watchOverdueLocked(max(next, now+l.graceTime()/4)) // they are looked at together
	}
}

// mayAnswer reports whether the request may be answered before its batch has ended.
func (l *lane) mayAnswer(ops []fdbpq.Op) bool {
	return l.d.options.GiveBack != nil || !has(ops, fdbpq.OpPop) && !has(ops, fdbpq.OpLease)
}

// answerLate ends a waiter that is in a batch: it leaves its line with the batch. The caller may call the
// Repliers.
func (l *lane) answerLate(w *waiter) {
	ops := w.rest()
	if w.ended || !l.mayAnswer(ops) {
		return
	}
	w.ended = true
	w.request.fail(ops, lateError(ops))
}

// lateError is the answer to a request in a batch that takes too long.
func lateError(ops []fdbpq.Op) error {
	for i := range ops {
		if ops[i].Kind.Writes() {
			return errLate
		}
	}
	return fmt.Errorf("%w: the store did not answer in time: try again", ErrUnavailable)
}

var errLate = fmt.Errorf("%w: the store does not answer; a push may or may not be in the queue, and what a pop took is put back",
	ErrUnknownOutcome)

// giveBack gives back what a batch took for a request that was answered before.
func (l *lane) giveBack(q *Queue, ops []fdbpq.Op, results []fdbpq.Result) {
	for i := range ops {
		if kind := ops[i].Kind; results[i].Err == nil && (kind == fdbpq.OpPop || kind == fdbpq.OpLease) {
			l.d.options.GiveBack(q, kind, &results[i])
		}
	}
}

// expire fails the requests that have waited too long, and all of them once ctx has ended. Unless
// all is set, it leaves some that are not first.
func (l *lane) expire(ctx context.Context, all bool) {
	before := time.Now().Add(-l.turnTime())
	if ctx.Err() != nil {
		before, all = time.Now().Add(time.Hour), true
	}
	l.mu.Lock()
	if ctx.Err() != nil {
		l.mu.ended = l.mu.closed // else a Replier could requeue endlessly
	}
	old := l.mu.backlog.takeOld(before, all)
	l.mu.Unlock()
	for i := range old {
		r := &old[i].Request
		l.d.release(r)
		r.fail(old[i].ops, fmt.Errorf("%w: the request waited %v for its turn and was not run: try again",
			ErrUnavailable, time.Since(r.Received).Round(time.Millisecond)))
	}
}
