package client

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"
)

// lease is a job that a worker has, and extends until it is done.
type lease struct {
	*Delivery
	ctx    context.Context // of the job
	cancel context.CancelCauseFunc
	timer  *time.Timer        // begins to extend it, which most jobs are too short for
	done   context.CancelFunc // nobody has to extend it any more
	kept   chan struct{}      // closed when nobody extends it any more
}

// begin keeps a leased job, from now on. The lease began at that time or later.
func (w *Worker) begin(d *Delivery, began time.Time) *lease {
	l := &lease{Delivery: d, kept: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(w.jobs)
	extending, done := context.WithCancel(context.Background())
	l.done = done
	l.timer = time.AfterFunc(time.Until(began.Add(w.extendEvery())), func() {
		defer close(l.kept)
		w.keep(extending, l, began)
	})
	return l
}

// extendEvery is how often leases are extended.
func (w *Worker) extendEvery() time.Duration { return w.o.AckWait / 3 }

// errDone is the cause of the context of a job that is done.
var errDone = errors.New("the job is done")

// release stops extending the lease, and reports whether it is known to be lost.
func (l *lease) release() (lost bool) {
	l.done()
	if l.timer.Stop() {
		close(l.kept)
	}
	<-l.kept
	cause := context.Cause(l.ctx)
	l.cancel(errDone)
	return errors.Is(cause, ErrLeaseLost) && !errors.Is(cause, errNotExtended)
}

// errNotExtended says that nobody knows whether the lease is lost.
var errNotExtended = errors.New("it could not be extended in time")

// keep extends a lease, from now until ctx ends. It ends the context of the job when the lease is lost, or may be.
func (w *Worker) keep(ctx context.Context, l *lease, began time.Time) {
	every := w.extendEvery()
	until := began.Add(w.o.AckWait)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		sent := time.Now()
		attempt, cancel := context.WithTimeout(ctx, max(min(every, time.Until(until)), firstPause))
		_, err := l.Extend(attempt)
		cancel()
		switch {
		case err == nil:
			until = sent.Add(w.o.AckWait)
			timer.Reset(time.Until(sent.Add(every)))
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLeaseLost):
			l.cancel(ErrLeaseLost)
			w.log.Warn("lost the lease of a job that is being done", "id", l.ID)
			return
		case !time.Now().Before(until):
			l.cancel(fmt.Errorf("%w: %w: %w", ErrLeaseLost, errNotExtended, err))
			w.log.Warn("cannot extend the lease of a job that is being done", "id", l.ID, "error", err)
			return
		default:
			timer.Reset(min(every/10, time.Second))
		}
	}
}

// finish settles a job whose Work has returned err. With next, it may return another one.
func (w *Worker) finish(l *lease, err error, next bool) *lease {
	switch {
	case err == nil && next:
		return w.acknowledge(l, w.nextOf)
	case err == nil:
		return w.acknowledge(l, w.ackOf)
	}
	killed := errors.Is(context.Cause(l.ctx), ErrStopped)
	lost := l.release()
	log := w.log.With("id", l.ID)
	var snooze *snoozed
	var drop *dropped
	switch {
	case lost:
		w.noteLostBefore(l, err)
	case errors.As(err, &snooze):
		w.settle(l, false, func(ctx context.Context) error { return l.Snooze(ctx, snooze.delay) })
	case errors.As(err, &drop):
		log.Warn("dropped a job", "reason", drop.reason)
		w.settle(l, false, func(ctx context.Context) error { return l.Term(ctx, drop.reason) })
	case killed:
		w.giveBack(l)
	default:
		log.Warn("a job failed", "deliveries", l.Deliveries, "error", err)
		w.settle(l, false, func(ctx context.Context) error { return l.Nak(ctx, delayOf(err), Reason(err.Error())) })
	}
	return nil
}

// call calls the Work.
func (w *Worker) call(l *lease) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return outcome(w.work(l.ctx, &Job{Item: l.Item, Queue: w.queue.name, Deliveries: l.Deliveries}))
}

// outcome returns what a Work has returned as a snoozed, a dropped, a retry, or an error of which there is only the text:
// the methods of errors may panic, as those of a nil pointer do that is not a nil error.
func outcome(err error) error {
	var snooze *snoozed
	var drop *dropped
	var again *retry
	switch {
	case err == nil:
		return nil
	case errors.As(err, &snooze):
		return snooze
	case errors.As(err, &drop):
		return drop
	case errors.As(err, &again):
		return &retry{errors.New(err.Error()), again.delay}
	}
	return errors.New(err.Error())
}

// panicked returns the error of a job that has panicked, for the function that recovers. It begins with the
// innermost calls, since the reason of a dead letter is cut.
func panicked(value any) error {
	var b strings.Builder
	fmt.Fprintf(&b, "panic: %s", cut(fmt.Sprint(value), maxPanicText))
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	inside := false // of what has panicked
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		name := frame.Function
		if inside = inside || name == "runtime.gopanic"; inside && !strings.HasPrefix(name, "runtime.") {
			fmt.Fprintf(&b, "\n%s (%s:%d)", name, path.Base(frame.File), frame.Line)
		}
	}
	return errors.New(b.String())
}

// maxPanicText leaves room for the stack in the reason of a dead letter.
const maxPanicText = 300

// cut cuts a text at a number of bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// patience is how long to wait for the answer to an acknowledgement: so that there is time for another one
// before the lease is over, but not so short that a slow answer counts as lost. The next job that is leased with one would be
// leased to nobody, and that delivery counts.
func (w *Worker) patience() time.Duration {
	return min(max(w.o.AckWait/3, lateReply), w.queue.client.timeout)
}

// settle ends a lease. It tries until the bridge has said whether that counts, or the worker is stopped
// for the second time. If the outcome of an attempt is unknown, a lost lease is what it most likely did.
func (w *Worker) settle(l *lease, unknown bool, end func(context.Context) error) {
	for p := new(pause); ; p.take(w.killed) {
		last := w.killed.Err() != nil
		err := w.attempt(end)
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrLeaseLost):
			if !unknown {
				w.noteLost(l)
			}
			return
		case hopeless(err), last:
			w.log.Error("cannot settle a job: it comes back when its lease is over", "id", l.ID, "error", err)
			return
		}
		unknown = unknown || errors.Is(err, ErrUnknownOutcome)
		w.log.Warn("cannot settle a job, trying again", "id", l.ID, "error", err)
	}
}

// attempt makes a request that must not be cut short when the worker stops.
func (w *Worker) attempt(request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.patience())
	defer cancel()
	return request(ctx)
}

func (w *Worker) noteLostBefore(l *lease, err error) {
	w.log.Warn("the lease of a job was lost before it was done: somebody else does it", "id", l.ID, "error", err)
}

func (w *Worker) noteLost(l *lease) {
	w.log.Warn("a job was done too late: its lease was over and somebody else got it", "id", l.ID)
}

// giveBack gives back a job that was not done. The delivery does not count.
func (w *Worker) giveBack(l *lease) {
	if l.release() {
		return
	}
	err := w.attempt(func(ctx context.Context) error { return l.Snooze(ctx, 0) })
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		w.log.Warn("cannot give a job back: it comes back when its lease is over", "id", l.ID, "error", err)
	}
}
