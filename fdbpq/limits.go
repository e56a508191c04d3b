package fdbpq

import (
	"errors"
	"fmt"
	"time"
)

// beginLimits starts to read the settings of all queues that are pushed to or
// popped from, because they may limit that.
func (t *txOps) beginLimits() {
	for _, q := range t.queues {
		if len(q.pushes) > 0 || q.pops != nil {
			q.ledger.beginSettings()
		}
	}
}

// limits returns the settings that limit the queue. If they cannot be read, nothing does: the items
// themselves may be fine.
func (g *ledger) limits() (*Settings, error) {
	s, err := g.settings()
	if errors.Is(err, ErrCorrupt) {
		return &Settings{}, nil
	}
	return s, err
}

// pausedError is the error of pops and leases of a paused queue.
type pausedError struct{ until time.Time }

// Error implements error.
func (e *pausedError) Error() string {
	return fmt.Sprintf("%v until %s", ErrPaused, e.until.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns the errors that this is.
func (e *pausedError) Unwrap() []error { return []error{ErrPaused, ErrEmpty} }

// pauseAt returns the error of pops and leases at the given time, nil if they are not paused.
func (s *Settings) pauseAt(now time.Time) *pausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &pausedError{s.PauseUntil}
}

// popLimits is what limits the pops and leases of one queue.
type popLimits struct {
	paused *pausedError // nil if they are not
}

// beginPopLimits finds out what limits the pops and leases of the queue.
func (q *queueOps) beginPopLimits() error {
	settings, err := q.ledger.limits()
	if err != nil {
		return err
	}
	q.pops.limits.paused = settings.pauseAt(q.ledger.now)
	return nil
}
