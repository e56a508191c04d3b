package client

import (
	"context"
	"errors"
)

// settleFailed settles a job whose Work has returned an error.
func (w *Worker) settleFailed(h *heldJob, err error) {
	killed := errors.Is(context.Cause(h.ctx), ErrStopped)
	lost := h.letGo()

	log := w.log.With("id", h.ID)
	var snooze *snoozed
	var drop *dropped
	switch {
	case lost:
		w.logLostBefore(h, err)
	case errors.As(err, &snooze):
		w.settle(h, false, func(ctx context.Context) error { return h.Snooze(ctx, snooze.delay) })
	case errors.As(err, &drop):
		log.Warn("dropped a job", "reason", drop.reason)
		w.settle(h, false, func(ctx context.Context) error { return h.Term(ctx, drop.reason) })
	case killed:
		w.giveBack(h)
	default:
		log.Warn("a job failed", "deliveries", h.Deliveries, "error", err)
		w.settle(h, false, func(ctx context.Context) error { return h.Nak(ctx, delayOf(err), Reason(err.Error())) })
	}
}

// settle sends the acknowledgement that ends a lease. It tries until the bridge has said whether
// that counts, or the worker is stopped for the second time. If the outcome of an attempt is
// unknown, that attempt most likely caused a later ErrLeaseLost.
func (w *Worker) settle(h *heldJob, unknown bool, send func(context.Context) error) {
	for p := new(pause); ; p.wait(w.killed) {
		last := w.killed.Err() != nil
		err := w.sendAck(send)
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrLeaseLost):
			if !unknown {
				w.logLost(h)
			}
			return
		case isHopeless(err), last:
			w.log.Error("cannot settle a job: it comes back when its lease is over", "id", h.ID, "error", err)
			return
		}
		unknown = unknown || errors.Is(err, ErrUnknownOutcome)
		w.log.Warn("cannot settle a job, trying again", "id", h.ID, "error", err)
	}
}

// giveBack gives back a job that was not done. The delivery does not count.
func (w *Worker) giveBack(h *heldJob) {
	if h.letGo() {
		return
	}
	err := w.sendAck(func(ctx context.Context) error { return h.Snooze(ctx, 0) })
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		w.log.Warn("cannot give a job back: it comes back when its lease is over", "id", h.ID, "error", err)
	}
}

// sendAck makes one attempt to send an acknowledgement, which no Stop cuts short.
func (w *Worker) sendAck(send func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.patience())
	defer cancel()
	return send(ctx)
}

func (w *Worker) logLostBefore(h *heldJob, err error) {
	w.log.Warn("the lease of a job was lost before it was done: somebody else does it", "id", h.ID, "error", err)
}

func (w *Worker) logLost(h *heldJob) {
	w.log.Warn("a job was done too late: its lease was over and somebody else got it", "id", h.ID)
}
