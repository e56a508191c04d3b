package client

import (
	"context"
	"errors"
	"time"
)

// settleFailed settles a job whose Work has failed.
func (s *source) settleFailed(h *heldJob, o *workFailure) {
	killed := errors.Is(context.Cause(h.ctx), ErrStopped)
	lost := h.letGo()

	switch {
	case lost:
		s.logLostBefore(h)
	case o.snooze:
		s.settle(h, nil, false, func(ctx context.Context) error { return h.Snooze(ctx, o.delay) })
	case o.drop:
		s.log.Warn("dropped a job", "id", h.ID, "reason", o.text)
		s.settle(h, nil, false, func(ctx context.Context) error { return h.Term(ctx, o.text) })
	case killed:
		s.release(h)
	default:
		s.settle(h, nil, false, h.failing(o.text, o.delay))
	}
}

// failing logs that a job has failed, and returns what gives it back after the delay.
func (h *heldJob) failing(text string, delay time.Duration) func(context.Context) error {
	options := []NakOption{Reason(text)}
	if delay == Backoff {
		options = append(options, RetryDelay(h.source.o.RetryDelay))
	}

	h.source.log.Warn("a job failed", "id", h.ID, "deliveries", h.Deliveries,
		"max_deliver", h.MaxDeliver, "error", text)
	return func(ctx context.Context) error { return h.Nak(ctx, delay, options...) }
}

// settle sends the acknowledgement that ends a lease. It retries until the bridge has said whether
// the acknowledgement counts, ErrInternal included, or the worker's grace was over settleTime ago.
// err is the error of an earlier attempt, or nil. unknown says that it may have counted: then a
// later ErrLeaseLost most likely means that it did.
func (s *source) settle(h *heldJob, err error, unknown bool, send func(context.Context) error) {
	for p := new(pause); ; p.wait(s.overdue) {
		if err == nil || s.overdue.Err() == nil {
			err = s.sendAck(send)
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrLeaseLost):
			if !unknown {
				s.logLost(h)
			}
			return
		case isHopeless(err), errors.Is(err, ErrInternal), s.overdue.Err() != nil:
			s.noteUnsettled(h, err, unknown)
			return
		}

		unknown = unknown || errors.Is(err, ErrUnknownOutcome)
		s.warnSeldom("cannot settle a job, trying again", "id", h.ID, "error", err)
	}
}

// release returns a job that was not done to the queue. The delivery does not count.
func (s *source) release(h *heldJob) {
	if !h.letGo() {
		s.settle(h, nil, false, func(ctx context.Context) error { return h.Snooze(ctx, 0) })
	}
}

// noteUnsettled notes a job that could not be settled because of err. unknown says that an earlier
// attempt may have counted. If the connection may not acknowledge, the worker ends: it would only
// do each job again and again.
func (s *source) noteUnsettled(h *heldJob, err error, unknown bool) {
	if lacksPermission(err) {
		s.fail(err)
	}
	if unknown && !errors.Is(err, ErrUnknownOutcome) {
		err = unknownAfter(err)
	}
	s.log.Error("cannot settle a job: it comes back when its lease is over",
		"id", h.ID, "error", err)
	if s.stopping.Err() == nil { // the job is back long before Run returns
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled.last = err
	s.unsettled.named = append(s.unsettled.named, s.queue.name+" "+h.ID)
}

func (s *source) logLostBefore(h *heldJob) {
	s.log.Warn("the lease of a job was lost before it was done: somebody else does it",
		"id", h.ID)
}

func (s *source) logLost(h *heldJob) {
	s.log.Warn("a job was settled too late: its lease was over and somebody else got it",
		"id", h.ID)
}
