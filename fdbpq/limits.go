package fdbpq

import (
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
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
func pauseAt(s *Settings, now time.Time) *pausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &pausedError{s.PauseUntil}
}

// popLimits is what limits the pops and leases of one queue.
type popLimits struct {
	paused    *pausedError // nil if they are not
	maxLeased int64        // 0 if there is no limit
	leased    kv.Future[[]byte]
	kept      int64 // places for leases that follow the acknowledgements that freed them
}

// beginPopLimits finds out what limits the pops and leases of the queue.
func (t *txOps) beginPopLimits(q *queueOps) error {
	settings, err := q.ledger.limits()
	if err != nil {
		return err
	}
	limits := popLimits{paused: pauseAt(settings, q.ledger.now), maxLeased: settings.MaxLeased}
	if limits.maxLeased > 0 && q.pops.leases {
		limits.leased = q.ledger.tx.Get(q.l.stateCounterKey(leased))
		for _, i := range q.pops.indexes {
			if t.hasPlace(i) {
				limits.kept++
			}
		}
	}
	q.pops.limits = limits
	return nil
}

// hasPlace reports whether an operation is a lease for which one of the acknowledgements that it follows has
// freed a place. The place is kept for it, whichever leases come before it.
func (t *txOps) hasPlace(i int) bool {
	return t.ops[i].Kind == OpLease && t.results[i].place
}

// leaseLimit returns an error if no further item may be leased. It wraps ErrMaxLeased or ErrCorrupt, or
// is one of the store.
func (q *queueOps) leaseLimit() error {
	limits := &q.pops.limits
	if limits.maxLeased == 0 {
		return nil
	}
	n, err := readCounter(limits.leased)
	if err == nil && n+q.ledger.held[leased]+limits.kept >= limits.maxLeased { // with those of this transaction
		err = fmt.Errorf("%w: %d", ErrMaxLeased, limits.maxLeased)
	}
	return err
}

// noteFreed records in a result that a lease has ended, if others may wait for that.
func (g *ledger) noteFreed(result *Result) error {
	settings, err := g.limits()
	if err == nil {
		result.Freed = settings.MaxLeased > 0
	}
	return err
}

func readCounter(value kv.Future[[]byte]) (int64, error) {
	encoded, err := value.Get()
	if err != nil {
		return 0, err
	}
	return parseLength(encoded)
}
