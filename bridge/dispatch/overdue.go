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
// says exactly what became of it. A store may overlook that the context has ended; so within graceTime
// the requests in the batch are answered all the same, and nobody knows what becomes of them.
// What the batch has taken for them then goes back to its place once it ends.

// maxGrace is the longest graceTime.
const maxGrace = 250 * time.Millisecond

// turnTime is how long a request may wait for its batch to begin.
func (l *lane) turnTime() time.Duration { return l.d.options.RequestTimeout / 4 * 3 }

// graceTime is how much later than RequestTimeout an answer may come. A batch has half of it to notice
// that its time is over.
func (l *lane) graceTime() time.Duration { return min(l.d.options.RequestTimeout/20, maxGrace) }

// pageTime is how long endOverdue waits at most for more requests to answer together.
func (l *lane) pageTime() time.Duration { return l.graceTime() / 4 }

// limit is when a request in a batch is answered at the latest, since the epoch of the timers.
func (l *lane) limit(r *Request) time.Duration {
	return l.timers.since(r.Received) + l.d.options.RequestTimeout + l.graceTime()/2
}

// limitOf is limit for a waiter in a batch. Until it has looked once, it is as any other request, unless
// its time is over before.
func (l *lane) limitOf(w *waiter) time.Duration {
	if !w.waits() {
		return l.limit(&w.request)
	}
	last := l.timers.at(w.request.Wait.Until) + l.lateTime()
	if w.state.hasParked() {
		return last
	}
	return min(l.limit(&w.request), last-l.pageTime())
}

// pushLocked adds a copy of a request to one of the backlogs.
func (l *lane) pushLocked(to *backlog, r *Request, ops []fdbpq.Op) {
	queued := *r
	queued.turnBy = r.Received.Add(l.turnTime())
	if r.Wait != nil {
		if last := r.Wait.Until.Add(l.lateTime() - l.pageTime()); last.Before(queued.turnBy) {
			queued.turnBy = last
		}
	}
	to.push(&queued, ops)
	l.watchOverdueLocked(l.timers.since(queued.turnBy))
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
		if r := &b.requests[i]; r.watched() {
			if at := l.limitIn(r); !any || at < b.overdue {
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

// limitIn is limit for a request as it is in a batch.
func (l *lane) limitIn(r *Request) time.Duration {
	if r.waiter != nil {
		return l.limitOf(r.waiter)
	}
	return l.limit(r)
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
			if r.watched() && l.limitIn(r) <= now && l.mayAnswer(ops) {
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

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, waiting := range []*backlog{&l.mu.returns, &l.mu.backlog} {
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

// mayAnswer reports whether the request may be answered before its batch has ended.
func (l *lane) mayAnswer(ops []fdbpq.Op) bool {
	return l.d.options.GiveBack != nil || !has(ops, fdbpq.OpPop) && !has(ops, fdbpq.OpLease)
}

// answerLate ends a waiter that is in a batch: it leaves its line with the batch. The caller may call the
// Repliers.
func (l *lane) answerLate(w *waiter) {
	ops := w.rest()
	if w.answered || !l.mayAnswer(ops) {
		return
	}
	w.answered = true
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
	now := time.Now()
	l.mu.Lock()
	over := ctx.Err() != nil
	if over {
		l.mu.ended = l.mu.closed // else a Replier could requeue endlessly
	}
	var late []lateRequest
	for _, waiting := range []*backlog{&l.mu.returns, &l.mu.backlog} {
		by := now
		if over {
			by = waiting.latest
		}
		late = append(late, waiting.takeLate(by, all || over)...)
	}
	if len(late) > 0 {
		l.mu.changed.Signal() // they may have held back others
	}
	l.mu.Unlock()
	for i := range late {
		r := &late[i].Request
		l.d.release(r)
		r.fail(late[i].ops, fmt.Errorf("%w: the request waited %v for its turn and was not run: try again",
			ErrUnavailable, time.Since(r.Received).Round(time.Millisecond)))
	}
}
