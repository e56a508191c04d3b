package fdbpq

import (
	"cmp"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// findChain finds the items of a chain. The error says why the chain fails, or is one of the store.
func (q *queueSettlements) findChain(chain []settlement) (failed error) {
	q.chains++
	var lost []int // counted from 0 in the chain, as errors count
	for k := range chain {
		err := q.find(&chain[k])
		switch {
		case kv.OfStore(err):
			return err
		case err != nil && failed == nil && len(chain) > 1:
			failed = fmt.Errorf("lease %d: %w", k, err)
		case err != nil && failed == nil:
			failed = err
		case chain[k].record == nil:
			lost = append(lost, k)
		}
	}

	if failed != nil || lost == nil {
		return failed
	}
	return q.lostLeases(chain, lost)
}

// find sets the record of a settlement in the present chain, nil if its token does not hold. The
// error is for the operation, ErrCorrupt, or one of the store.
func (q *queueSettlements) find(s *settlement) (err error) {
	if s.result.Err != nil {
		return s.result.Err
	}

	id := &s.Token.ID
	switch chain := q.found[*id]; chain {
	case 0: // for the first time
	case q.chains: // another one of the chain ends the lease
		return nil
	default: // this transaction may have moved the item, so the read is stale
		s.read = q.lookUp(s)
		s.read.LookUpReady(q.tx, q.l, id)
	}

	if s.record, err = s.read.Find(q.l, &s.Token); s.record != nil {
		q.found[*id] = q.chains
	}
	if err != nil || s.record == nil || s.Kind == OpExtend || !codec.Must(id) {
		return err
	}
	if s.meta != nil {
		return cmp.Or(s.meta.ReadHeaders(q.snapshot, q.l), s.meta.Err)
	}
	return q.ledger.Understands(s.record)
}

// lostLeases returns the error of a chain in which some leases, given by their numbers, are lost.
// For acknowledgements it reads whether they were made before. The error may be one of the store.
func (q *queueSettlements) lostLeases(chain []settlement, lost []int) error {
	done, err := q.doneBefore(chain, lost)
	switch {
	case err != nil:
		return err
	case len(chain) > 1:
		return &LostLeases{Lost: lost, Done: done, Of: len(chain)}
	case len(done) > 0:
		return fmt.Errorf("%w: %w", ErrLeaseLost, ErrDone)
	}
	return ErrLeaseLost
}

// doneBefore returns which of the lost leases of a chain, given by their numbers, are of
// acknowledgements of finished jobs with the token that finished them. What it reads without
// conflict stays true: that lease is over for good. The error is one of the store.
func (q *queueSettlements) doneBefore(chain []settlement, lost []int) (done []int, err error) {
	q.writeKept() // or they would not be found
	reads := make([]*state.FinishedLookup, len(lost))
	for n, k := range lost {
		id := &chain[k].Token.ID
		if chain[k].Kind == OpAck && !(q.l.Fifo && id.Priority != 0) {
			reads[n] = state.BeginFinished(q.l, q.snapshot, id, 1)
		}
	}

	for n, k := range lost {
		if reads[n] == nil {
			continue
		}
		f, err := reads[n].Load(q.snapshot, 0)
		if codec.UnlessCorrupt(err) != nil {
			return nil, err
		}
		if f != nil && f.Record.Fence == chain[k].Token.Fence {
			done = append(done, k)
		}
	}
	return done, nil
}
