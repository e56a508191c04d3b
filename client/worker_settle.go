package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
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
		s.settle(h, nil, false, func(ctx context.Context) error { return h.Snooze(ctx, o.delay) })
	case o.drop:
		log.Warn("dropped a job", "reason", o.text)
		s.settle(h, nil, false, func(ctx context.Context) error { return h.Term(ctx, o.text) })
	case killed:
		s.giveBack(h)
	default:
		log.Warn("a job failed", "deliveries", h.Deliveries, "error", o.text)
		s.settle(h, nil, false, func(ctx context.Context) error {
			return h.Nak(ctx, o.delay, Reason(o.text))
		})
	}
}

const (
	// settleTime is how long a worker that stops tries to settle its jobs.
	settleTime = 30 * time.Second

	// maxNamed is how many unsettled jobs an error names.
	maxNamed = 10
)

var errOverdue = fmt.Errorf("the worker stopped %v ago", settleTime)

// settle sends the acknowledgement that ends a lease. It retries until the bridge has said whether
// the acknowledgement counts, the context of Shutdown has ended, or the worker has stopped
// settleTime ago. err is the error of an earlier attempt, or nil. unknown says that it may have
// counted: then a later ErrLeaseLost most likely means that it did.
func (s *source) settle(h *heldJob, err error, unknown bool, send func(context.Context) error) {
	for p := new(pause); ; p.wait(s.ending) {
		last := s.ending.Err() != nil
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
		case isHopeless(err), last, s.overdue.Err() != nil:
			const text = "cannot settle a job: it comes back when its lease is over"
			s.log.Error(text, "id", h.ID, "error", err)
			s.noteUnsettled(h, err)
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
		s.noteUnsettled(h, err)
	}
}

// noteUnsettled notes a job that could not be settled. If the connection may not acknowledge, the
// worker ends: it would only do each job again and again.
func (s *source) noteUnsettled(h *heldJob, err error) {
	if lacksPermission(err) {
		s.fail(err)
	}
	if s.stopping.Err() == nil { // the job is back long before Run returns
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled.count++
	s.unsettled.last = err
	if len(s.unsettled.named) < maxNamed {
		s.unsettled.named = append(s.unsettled.named, s.queue.name+" "+h.ID)
	}
}

// unsettled has the jobs that could not be settled.
type unsettled struct {
	count int
	named []string // queues and ids of some
	last  error
}

// result returns the error of a Run that ended because of err, which may be nil.
func (u *unsettled) result(err error) error {
	if u.count == 0 {
		return err
	}

	return fmt.Errorf("%w: %d of them, such as %s: %w", ErrUnsettled, u.count,
		strings.Join(u.named, ", "), cmp.Or(err, u.last))
}

// sendAck makes one attempt to send an acknowledgement. Shutdown does not cut it short.
func (s *source) sendAck(send func(context.Context) error) error {
	ctx, cancel := s.attempt()
	defer cancel()
	return send(ctx)
}

// errReplyLost ends an attempt whose reply was lost with the connection.
var errReplyLost = errors.New("the connection was lost")

// attempt returns the context of one attempt to settle. It ends when the worker has stopped
// settleTime ago, unless the attempt begins only then, and when the connection was lost and is
// back, so that the next attempt begins at once.
func (s *source) attempt() (context.Context, context.CancelFunc) {
	parent := context.Background()
	if s.overdue.Err() == nil {
		parent = s.overdue
	}
	ctx, cancel := context.WithTimeout(parent, s.patience())
	if isAway(s.queue.client.nc) { // it is sent only once the connection is back
		return ctx, cancel
	}

	ctx, lose := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.session.Load(), func() { lose(errReplyLost) })
	return ctx, func() {
		stop()
		cancel()
	}
}

func (s *source) logLostBefore(h *heldJob) {
	const text = "the lease of a job was lost before it was done: somebody else does it"
	s.log.Warn(text, "id", h.ID)
}

func (s *source) logLost(h *heldJob) {
	const text = "a job was done too late: its lease was over and somebody else got it"
	s.log.Warn(text, "id", h.ID)
}
