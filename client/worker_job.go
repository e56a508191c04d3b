package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// heldJob is a job that a worker has leased. The worker extends the lease until the job is done.
type heldJob struct {
	*Delivery
	source *source
	length time.Duration   // of its lease
	ctx    context.Context // of the Work, without its timeout
	cancel context.CancelCauseFunc

	timer         *time.Timer        // starts a goroutine that extends the lease of a long job
	stopExtending context.CancelFunc // stops that goroutine
	extended      chan struct{}      // closed when nothing extends the lease any more
}

var (
	// errDone is the cause of the context of a job that is done.
	errDone = errors.New("the job is done")

	// errNotExtended means that the lease may or may not be lost.
	errNotExtended = errors.New("it could not be extended in time")
)

// hold returns a job whose lease the worker extends. The lease began at that time or later.
func (s *source) hold(d *Delivery, began time.Time) *heldJob {
	if d.AckWait > 0 {
		s.ackWait.Store(int64(d.AckWait))
	}
	h := &heldJob{Delivery: d, source: s, length: s.leaseLength(), extended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(s.jobs)

	extending, stop := context.WithCancel(context.Background())
	h.stopExtending = stop
	h.timer = time.AfterFunc(time.Until(began.Add(h.length/3)), func() {
		defer close(h.extended)
		h.keepExtending(extending, began)
	})
	return h
}

// keepExtending extends the lease now and then regularly, until ctx ends. It ends the context of
// the job when the lease is lost, or may be lost.
func (h *heldJob) keepExtending(ctx context.Context, began time.Time) {
	length, log := h.length, h.source.log.With("id", h.ID)
	every, until := length/3, began.Add(length)

	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}

		sent := time.Now() // the lease restarts later
		attempt, cancel := context.WithTimeout(ctx, extendTime(every, until.Sub(sent)))
		_, err := h.Extend(attempt)
		cancel()

		switch {
		case err == nil:
			until = sent.Add(length)
			wait = time.Until(sent.Add(every))
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLeaseLost):
			h.cancel(ErrLeaseLost)
			log.Warn("lost the lease of a job that is being done")
			return
		case !time.Now().Before(until):
			h.cancel(fmt.Errorf("%w: %w: %w", ErrLeaseLost, errNotExtended, err))
			log.Warn("cannot extend the lease of a job that is being done", "error", err)
			return
		default:
			h.source.warnSeldom("cannot extend a lease, trying again", "id", h.ID, "error", err)
			wait = min(every/10, time.Second)
		}
	}
}

// lateExtendTime is how long the reply may take to an attempt to extend a lease that is over, or
// nearly so. The process stood still, and most likely nobody else has the job.
const lateExtendTime = time.Second

// extendTime returns how long an attempt to extend a lease may take that has so much time left.
// Attempts are made at least as often as every says.
func extendTime(every, left time.Duration) time.Duration {
	if left <= 0 {
		return lateExtendTime
	}
	return min(every, max(left, lateExtendTime))
}

// tellProgress says how far the job is. A lost lease ends the context of the job.
func (h *heldJob) tellProgress(ctx context.Context, progress []byte) error {
	_, err := h.Progress(ctx, progress)
	if errors.Is(err, ErrLeaseLost) {
		h.cancel(ErrLeaseLost)
	}
	return err
}

// limit returns the context of the Work, which ends after a timeout, unless that is 0. After the
// timeout the lease is not extended any more: a Work that hangs must not keep the job from others.
func (h *heldJob) limit(timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return h.ctx, func() {}
	}

	ctx, cancel := context.WithTimeoutCause(h.ctx, timeout, ErrTimedOut)
	context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrTimedOut) {
			h.source.log.Warn("a job takes too long", "id", h.ID, "job_timeout", timeout)
			h.stopExtending()
		}
	})
	return ctx, cancel
}

// letGo stops extending the lease, and reports whether the lease is certainly lost.
func (h *heldJob) letGo() (lost bool) {
	h.stopExtending()
	if h.timer.Stop() {
		close(h.extended) // otherwise the timer's goroutine closes it
	}
	<-h.extended

	cause := context.Cause(h.ctx)
	h.cancel(errDone)
	return errors.Is(cause, ErrLeaseLost) && !errors.Is(cause, errNotExtended)
}
