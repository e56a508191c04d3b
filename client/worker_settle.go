package client

import (
	"context"
	"errors"
)

// settleFailed settles a job whose Work has failed.
func (s *source) settleFailed(h *heldJob, o *workFailure) {
	killed := errors.Is(context.Cause(h.ctx), ErrStopped)
	lost := h.letGo()

	log := s.log.With("id", h.ID)
	switch {
	case lost:
		s.logLostBefore(h)
	case o.snooze:
		s.settle(h, false, func(ctx context.Context) error { return h.Snooze(ctx, o.delay) })
	case o.drop:
		log.Warn("dropped a job", "reason", o.text)
		s.settle(h, false, func(ctx context.Context) error { return h.Term(ctx, o.text) })
	case killed:
		s.giveBack(h)
	default:
		log.Warn("a job failed", "deliveries", h.Deliveries, "error", o.text)
		s.settle(h, false, func(ctx context.Context) error {
			return h.Nak(ctx, o.delay, Reason(o.text))
		})
	}
}

// settle sends the acknowledgement that ends a lease. It retries until the bridge has said whether
// the acknowledgement counts, or the context of Shutdown has ended. unknown says that an earlier
// attempt may have counted: then a later ErrLeaseLost most likely means that it did.
func (s *source) settle(h *heldJob, unknown bool, send func(context.Context) error) {
	for p := new(pause); ; p.wait(s.killed) {
		last := s.killed.Err() != nil
		err := s.sendAck(send)
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrLeaseLost):
			if !unknown {
				s.logLost(h)
			}
			return
		case isHopeless(err), last:
			const text = "cannot settle a job: it comes back when its lease is over"
			s.log.Error(text, "id", h.ID, "error", err)
			return
		}

		unknown = unknown || errors.Is(err, ErrUnknownOutcome)
		s.log.Warn("cannot settle a job, trying again", "id", h.ID, "error", err)
	}
}

// giveBack returns a job that was not done to the queue. The delivery does not count.
func (s *source) giveBack(h *heldJob) {
	if h.letGo() {
		return
	}
	err := s.sendAck(func(ctx context.Context) error { return h.Snooze(ctx, 0) })
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		const text = "cannot give a job back: it comes back when its lease is over"
		s.log.Warn(text, "id", h.ID, "error", err)
	}
}

// sendAck makes one attempt to send an acknowledgement. Shutdown does not cut it short.
func (s *source) sendAck(send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience())
	defer cancel()
	return send(ctx)
}

func (s *source) logLostBefore(h *heldJob) {
	const text = "the lease of a job was lost before it was done: somebody else does it"
	s.log.Warn(text, "id", h.ID)
}

func (s *source) logLost(h *heldJob) {
	const text = "a job was done too late: its lease was over and somebody else got it"
	s.log.Warn(text, "id", h.ID)
}
