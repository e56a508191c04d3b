package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// idleWait is how long one request waits for a job.
const idleWait = 5 * time.Minute

// lease leases a job, and waits for one. It returns nil if the worker stops.
func (s *source) lease() *heldJob {
	var p pause
	for s.stopping.Err() == nil {
		h, err := s.tryLease()
		switch {
		case h != nil: // even with an error, which the next request meets again
			return h
		case errors.Is(err, ErrEmpty):
			p = pause{}
		case isHopeless(err):
			s.fail(err)
		case s.stopping.Err() != nil && errors.Is(err, ErrNotSent):
		case s.killed.Err() == nil:
			s.warnSeldom("cannot lease a job", "error", err)
			p.wait(s.stopping)
		}
	}
	return nil
}

// tryLease makes one attempt to lease a job. If there is none, it waits for one.
func (s *source) tryLease() (*heldJob, error) {
	// Only one loop of a queue waits at a time.
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	case <-s.stopping.Done():
		return nil, ErrEmpty
	}

	if err := s.awaitConnected(); err != nil {
		return nil, err
	}

	return s.leaseOnce(context.Background(),
		Expires(idleWait), IdleHeartbeat(s.heartbeat))
}

// awaitConnected waits for the connection, but not too long, so that the worker logs an outage.
func (s *source) awaitConnected() error {
	ctx, cancel := context.WithTimeout(s.stopping, s.patience())
	defer cancel()
	return s.queue.client.awaitConnection(ctx, s.queue.name)
}

// leaseOnce sends a request for a job and returns when it has ended, even if the worker stops: a
// request that is given up may still get a job. So the worker has the bridge end the wait when the
// worker stops, and when the connection is back, because it may lead to another bridge now.
func (s *source) leaseOnce(
	ctx context.Context, options ...LeaseOption,
) (h *heldJob, err error) {
	o := leaseOptions(0, append(options, AckWait(s.o.AckWait), Holder(s.holder)))
	p, err := s.queue.newPop(s.verb)
	if err != nil {
		return nil, err
	}

	nc := s.queue.client.nc
	reconnected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(reconnected)

	p.stop, p.reconnected = s.stopping, reconnected

	// Leases begin later. The bridge sent each heartbeat at least an interval after the one before.
	// When the worker reads it says little: the worker may have stood still.
	began := time.Now()
	p.onHeartbeat = func() { began = began.Add(o.IdleHeartbeat) }

	err = s.queue.client.sendAndReceive(ctx, p, o, func(r *received) error {
		d, err := s.queue.delivery(r)
		if err != nil {
			return err
		}

		if time.Since(began) >= cmp.Or(d.AckWait, s.leaseLength()) {
			err = s.sendAck(func(ctx context.Context) (err error) {
				began = time.Now() // the lease restarts later
				_, err = d.Extend(ctx)
				return err
			})
			if err != nil { // somebody else may have the job
				return err
			}
		}

		h = s.hold(d, began)
		return nil
	})
	return h, err
}

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
