package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginLimits starts to read the settings of all queues that are pushed to or
// popped from, because they may limit that.
func (t *txOps) beginLimits() {
	for _, q := range t.queues {
		if len(q.pushes) > 0 || q.pops != nil {
			q.ledger.BeginSettings()
		}
	}
}

// pauseAt returns the error of pops and leases at the given time, nil if they are not paused.
func pauseAt(s *Settings, now time.Time) *codec.PausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &codec.PausedError{Until: s.PauseUntil}
}

// popLimits is what limits the pops and leases of one queue.
type popLimits struct {
	paused    *codec.PausedError // nil if they are not
	maxLeased int64              // 0 if there is no limit
	leased    kv.Future[[]byte]
	kept      int64 // places for leases that follow the acknowledgements that freed them
}

// beginPopLimits finds out what limits the pops and leases of the queue.
func (t *txOps) beginPopLimits(q *queueOps) error {
	settings, err := q.ledger.Limits()
	if err != nil {
		return err
	}
	limits := popLimits{paused: pauseAt(settings, q.ledger.Now), maxLeased: settings.MaxLeased}
	if limits.maxLeased > 0 && q.pops.leases {
		limits.leased = q.ledger.Tx.Get(q.l.StateCounterKey(codec.HeldLeased))
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
	n, err := state.ReadCounter(limits.leased)
	if err == nil && n+q.ledger.Held[codec.HeldLeased]+limits.kept >= limits.maxLeased { // with those of this transaction
		err = fmt.Errorf("%w: %d", ErrMaxLeased, limits.maxLeased)
	}
	return err
}
