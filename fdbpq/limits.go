package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// popLimits is what limits the pops and leases of one queue.
type popLimits struct {
	paused    *codec.PausedError // nil if they are not
	maxLeased int64              // 0 if there is no limit
	leased    kv.Future[[]byte]
	kept      int64 // places for leases that follow the acknowledgements that freed them
}

// pauseAt returns the error of pops and leases at the given time, nil if they are not paused.
func pauseAt(s *Settings, now time.Time) *codec.PausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &codec.PausedError{Until: s.PauseUntil}
}

// beginLimits finds out what limits the pops and leases, and starts to read how many items are
// leased if that matters.
func (q *queuePops) beginLimits() error {
	settings, err := q.ledger.Limits()
	if err != nil {
		return err
	}

	limits := popLimits{paused: pauseAt(settings, q.now), maxLeased: settings.MaxLeased}
	if limits.maxLeased > 0 && q.leases {
		limits.leased = q.tx.Get(q.l.StateCounterKey(codec.HeldLeased))
		for _, i := range q.indexes {
			if q.hasPlace(i) {
				limits.kept++
			}
		}
	}
	q.limits = limits
	return nil
}

// hasPlace reports whether an operation is a lease for which one of the acknowledgements that it
// follows has freed a place. The place is kept for it, whichever leases come before it.
func (t *txn) hasPlace(i int) bool {
	return t.ops[i].Kind == OpLease && t.results[i].place
}

// releasePlaces gives the places that were kept for operation i, and those that follow it, to them.
func (p *popLimits) releasePlaces(t *txn, i int) {
	for ; i < len(t.ops) && t.hasPlace(i); i++ {
		p.kept--
	}
}

// leaseLimit returns an error if no further item may be leased. It wraps ErrMaxLeased or ErrCorrupt,
// or is one of the store.
func (q *queuePops) leaseLimit() error {
	limits := &q.limits
	if limits.maxLeased == 0 {
		return nil
	}
	n, err := state.ReadCounter(limits.leased)
	// The counter does not have the leases of this transaction.
	if err == nil && n+q.ledger.Held[codec.HeldLeased]+limits.kept >= limits.maxLeased {
		err = fmt.Errorf("%w: %d", ErrMaxLeased, limits.maxLeased)
	}
	return err
}
