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

const (
	// settleTime is how long after its grace a worker that stops tries to settle its jobs.
	settleTime = 5 * time.Second

	// defaultGrace is how long jobs have to end, if nobody says it. Those that take longer go on.
	defaultGrace = 25 * time.Second

	// maxNamed is how many unsettled jobs an error names.
	maxNamed = 10
)

var errOverdue = fmt.Errorf("the worker's grace period ended %v ago", settleTime)

// settle sends the acknowledgement that ends a lease. It retries until the bridge has said whether
// the acknowledgement counts, or the worker's grace was over settleTime ago. err is the error of an
// earlier attempt, or nil. unknown says that it may have counted: then a later ErrLeaseLost most
// likely means that it did.
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
		case isHopeless(err), s.overdue.Err() != nil:
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

// unsettled has the jobs that could not be settled.
type unsettled struct {
	named []string // queues and ids
	last  error
}

// result returns the error of a Run that ended because of err, which may be nil.
func (u *unsettled) result(err error) error {
	n := len(u.named)
	if n == 0 {
		return err
	}
	return fmt.Errorf("%w: %d of them, such as %s: %w", ErrUnsettled, n,
		strings.Join(u.named[:min(n, maxNamed)], ", "), cmp.Or(err, u.last))
}

// sendAck makes one attempt to send an acknowledgement. Shutdown does not cut it short.
func (s *source) sendAck(send func(context.Context) error) error {
	ctx, cancel := s.attempt()
	defer cancel()
	return send(ctx)
}

// errReplyLost ends an attempt whose reply was lost with the connection.
var errReplyLost = errors.New("the connection was lost")

// attempt returns the context of one attempt to settle. It ends settleTime after the worker's
// grace, or has that time if it begins later. It also ends when the connection was lost and is
// back, so that the next attempt begins at once.
func (s *source) attempt() (context.Context, context.CancelFunc) {
	parent, timeout := s.overdue, s.patience()
	if parent.Err() != nil {
		parent, timeout = context.Background(), min(timeout, settleTime)
	}
	ctx, cancel := context.WithTimeout(parent, timeout)
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

// warnSeldom logs what goes wrong again and again, at most once a minute for each text.
func (s *source) warnSeldom(text string, args ...any) {
	s.mu.Lock()
	last, before := s.warned[text]
	seldom := !before || time.Since(last) >= time.Minute
	if seldom {
		s.warned[text] = time.Now()
	}
	s.mu.Unlock()

	if seldom {
		s.log.Warn(text, args...)
	}
}

func (s *source) logLostBefore(h *heldJob) {
	s.log.Warn("the lease of a job was lost before it was done: somebody else does it",
		"id", h.ID)
}

func (s *source) logLost(h *heldJob) {
	s.log.Warn("a job was settled too late: its lease was over and somebody else got it",
		"id", h.ID)
}
