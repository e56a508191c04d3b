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
	ctx    context.Context // of the Work, but for its timeout
	cancel context.CancelCauseFunc

	timer         *time.Timer        // starts extending; most jobs are done before
	stopExtending context.CancelFunc // of the goroutine that the timer starts
	extended      chan struct{}      // closed when nobody extends the lease any more
}

var (
	// errDone is the cause of the context of a job that is done.
	errDone = errors.New("the job is done")

	// errNotExtended says that nobody knows whether the lease is lost.
	errNotExtended = errors.New("it could not be extended in time")
)

// hold extends the lease of a job from now on. The lease began at that time or later.
func (s *source) hold(d *Delivery, began time.Time) *heldJob {
	h := &heldJob{Delivery: d, source: s, extended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(s.jobs)

	extending, stop := context.WithCancel(context.Background())
	h.stopExtending = stop
	h.timer = time.AfterFunc(time.Until(began.Add(s.ackWait/3)), func() {
		defer close(h.extended)
		h.keepExtending(extending, began)
	})
	return h
}

// keepExtending extends the lease, at once and then regularly, until ctx ends. It ends the context
// of the job when the lease is lost, or may be.
func (h *heldJob) keepExtending(ctx context.Context, began time.Time) {
	length, log := h.source.ackWait, h.source.log.With("id", h.ID)
	every, until := length/3, began.Add(length)
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}

		sent := time.Now() // the lease begins anew after that
		attempt, cancel := context.WithTimeout(ctx, max(min(every, time.Until(until)), firstPause))
		_, err := h.Extend(attempt)
		cancel()

		switch {
		case err == nil:
			until = sent.Add(length)
			timer.Reset(time.Until(sent.Add(every)))
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
			timer.Reset(min(every/10, time.Second))
		}
	}
}

// limit returns the context of the Work, which ends after a timeout, 0 for none. Then the lease is
// not extended any more: a Work that hangs must not keep the job from others.
func (h *heldJob) limit(timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return h.ctx, func() {}
	}

	ctx, cancel := context.WithTimeoutCause(h.ctx, timeout, ErrTimedOut)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrTimedOut) {
			h.source.log.Warn("a job takes too long", "id", h.ID, "job_timeout", timeout)
			h.stopExtending()
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// letGo stops extending the lease, and reports whether the lease is known to be lost.
func (h *heldJob) letGo() (lost bool) {
	h.stopExtending()
	if h.timer.Stop() {
		close(h.extended) // else the timer's goroutine does that
	}
	<-h.extended

	cause := context.Cause(h.ctx)
	h.cancel(errDone)
	return errors.Is(cause, ErrLeaseLost) && !errors.Is(cause, errNotExtended)
}
