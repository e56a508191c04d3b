package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// popLimits is what limits the pops and leases of one queue.
type popLimits struct {
	*queueTxn
	paused    *codec.PausedError // nil if they are not
	maxLeased int64              // 0 if there is no limit
	leased    kv.Future[[]byte]
	kept      int64 // places for leases that follow the acknowledgements that freed them

	rate   string        // of the queue
	bucket *state.Bucket // what is left of that; nil without one
	used   time.Time     // when a rate that is used up gives the next token
}

// beginLeased finds out what limits the pops and leases with the given indexes, and starts to read
// how many items are leased if that matters.
func (p *popLimits) beginLeased(indexes []int, leases bool) error {
	set, err := p.ledger.ReadableSettings()
	if err != nil {
		return err
	}

	p.paused, p.maxLeased = codec.PausedAt(set, p.now), set.MaxLeased
	if rate, err := settings.ParseRate(set.Rate); err == nil && rate.Count > 0 { // else it is another version's
		p.rate, p.bucket = set.Rate, state.NewBucket(codec.NotIndexed, rate, p.snapshot.Get(p.l.BucketKey(codec.NotIndexed)))
	}
	if p.maxLeased > 0 && leases {
		p.leased = p.tx.Get(p.l.StateCounterKey(Leased))
		for _, i := range indexes {
			if p.hasPlace(i) {
				p.kept++
			}
		}
	}
	return nil
}

// closed returns why nothing is served at all, nil if something may be: the queue is paused, or its
// rate is used up. The error may be one of the store.
func (p *popLimits) closed() error {
	if p.paused != nil {
		return p.paused
	}
	if p.bucket == nil {
		return nil
	}
	at, err := p.bucket.Next(p.now)
	if err == nil && !at.IsZero() {
		p.used = at
		err = &codec.RateError{Rate: p.rate, Until: at}
	}
	return err
}

// hasPlace reports whether an operation is a lease for which one of the acknowledgements that it
// follows has freed a place. The place is kept for it, whichever leases come before it.
func (p *popLimits) hasPlace(i int) bool {
	return p.ops[i].Kind == OpLease && p.results[i].place
}

// releasePlaces gives the places that were kept for operation i, and those that follow it, to them.
func (p *popLimits) releasePlaces(i int) {
	for ; i < len(p.ops) && p.hasPlace(i); i++ {
		p.kept--
	}
}

// checkLease returns an error if no further item may be leased. It wraps ErrMaxLeased or
// ErrCorrupt, or is one of the store.
func (p *popLimits) checkLease() error {
	if p.maxLeased == 0 {
		return nil
	}
	n, err := state.ReadCounter(p.leased)
	// The counter does not have the leases of this transaction.
	if err == nil && n+p.ledger.Held(Leased)+p.kept >= p.maxLeased {
		err = fmt.Errorf("%w: %d", ErrMaxLeased, p.maxLeased)
	}
	return err
}
