package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// lease is a job that a worker has, and extends until it is done.
type lease struct {
	*Delivery
	ctx    context.Context // of the job
	cancel context.CancelCauseFunc
	kept   chan struct{} // closed when nobody extends it any more
}

// begin keeps a leased job, from now on.
func (w *Worker) begin(d *Delivery) *lease {
	l := &lease{Delivery: d, kept: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(w.jobs)
	unlink := context.AfterFunc(w.killed, func() { l.cancel(context.Cause(w.killed)) })
	go func() {
		defer close(l.kept)
		defer unlink()
		w.keep(l)
	}()
	return l
}

// errDone is the cause of the context of a job that is done.
var errDone = errors.New("the job is done")

// release stops extending the lease, and reports whether it is known to be lost.
func (l *lease) release() (lost bool) {
	l.cancel(errDone)
	<-l.kept
	return errors.Is(context.Cause(l.ctx), ErrLeaseLost) && !errors.Is(context.Cause(l.ctx), errNotExtended)
}

// errNotExtended says that nobody knows whether the lease is lost.
var errNotExtended = errors.New("it could not be extended in time")

// keep extends a lease until its context ends. It ends the context when the lease is lost.
func (w *Worker) keep(l *lease) {
	every := w.o.AckWait / 3
	until := time.Now().Add(w.o.AckWait)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		}
		sent := time.Now()
		ctx, cancel := context.WithTimeout(l.ctx, max(every, firstPause))
		_, err := l.Extend(ctx)
		cancel()
		switch {
		case err == nil:
			until = sent.Add(w.o.AckWait)
			timer.Reset(time.Until(sent.Add(every)))
		case l.ctx.Err() != nil:
			return
		case errors.Is(err, ErrLeaseLost):
			w.log.Warn("lost the lease of a job that is being done", "id", l.ID)
			l.cancel(ErrLeaseLost)
			return
		case !time.Now().Before(until):
			w.log.Warn("cannot extend the lease of a job that is being done", "id", l.ID, "error", err)
			l.cancel(fmt.Errorf("%w: %w: %w", ErrLeaseLost, errNotExtended, err))
			return
		default:
			timer.Reset(min(every/10, time.Second))
		}
	}
}

// do does a job and settles it. With next, it may return another one.
func (w *Worker) do(l *lease, next bool) *lease {
	err := w.call(l)
	killed := context.Cause(l.ctx) == ErrStopped
	lost := l.release()
	log := w.log.With("id", l.ID)
	var snooze *snoozed
	var drop *dropped
	switch {
	case lost:
		log.Warn("the lease of a job was lost before it was done: somebody else does it", "error", err)
		return nil
	case err == nil && next && w.stopping.Err() == nil:
		return w.next(l)
	case err == nil:
		w.settle(l, l.Ack)
	case errors.As(err, &snooze):
		w.settle(l, func(ctx context.Context) error { return l.Snooze(ctx, snooze.delay) })
	case errors.As(err, &drop):
		log.Warn("dropped a job", "reason", drop.reason)
		w.settle(l, func(ctx context.Context) error { return l.Term(ctx, drop.reason) })
	case killed:
		w.giveBack(l)
	default:
		log.Warn("a job failed", "deliveries", l.Deliveries, "error", err)
		w.settle(l, func(ctx context.Context) error { return l.Nak(ctx, Backoff, Reason(err.Error())) })
	}
	return nil
}

// call calls the Work.
func (w *Worker) call(l *lease) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.work(l.ctx, &Job{Item: l.Item, Queue: w.queue.name, Deliveries: l.Deliveries})
}

// next acknowledges a job and leases the next one, which it returns, nil if there is none.
func (w *Worker) next(l *lease) *lease {
	d, err := l.Next(context.Background())
	switch {
	case err == nil:
		return w.begin(d)
	case errors.Is(err, ErrEmpty), errors.Is(err, ErrTooLarge): // acknowledged
	case errors.Is(err, ErrLeaseLost):
		w.noteLost(l)
	default:
		w.settle(l, l.Ack)
	}
	return nil
}

// settle ends a lease. It tries until the bridge has said whether that counts, or the worker is stopped
// for the second time.
func (w *Worker) settle(l *lease, end func(context.Context) error) {
	unknown := false
	for p := new(pause); ; p.take(w.killed) {
		last := w.killed.Err() != nil
		err := w.attempt(end, last)
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrLeaseLost):
			if !unknown { // else the attempt before most likely counted
				w.noteLost(l)
			}
			return
		case errors.Is(err, ErrBadRequest), last:
			w.log.Error("cannot settle a job: it comes back when its lease is over", "id", l.ID, "error", err)
			return
		}
		unknown = unknown || errors.Is(err, ErrUnknownOutcome)
		w.log.Warn("cannot settle a job, trying again", "id", l.ID, "error", err)
	}
}

// attempt makes a request that must not be cut short when the worker stops. The last one has little
// time.
func (w *Worker) attempt(request func(context.Context) error, last bool) error {
	ctx := context.Background()
	if last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lateReply)
		defer cancel()
	}
	return request(ctx)
}

func (w *Worker) noteLost(l *lease) {
	w.log.Warn("a job was done too late: its lease was over and somebody else got it", "id", l.ID)
}

// giveBack gives back a job that was not done. The delivery does not count.
func (w *Worker) giveBack(l *lease) {
	if l.release() {
		return
	}
	err := w.attempt(func(ctx context.Context) error { return l.Snooze(ctx, 0) }, true)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		w.log.Warn("cannot give a job back: it comes back when its lease is over", "id", l.ID, "error", err)
	}
}
