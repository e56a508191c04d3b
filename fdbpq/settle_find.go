package fdbpq

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// findChain finds the items of a chain and puts them into q.found. The error says why the chain
// fails, or is one of the store.
func (q *queueSettlements) findChain(n int, chain []int) (failed error) {
	q.found = q.found[:0]
	var lost []int
	for k := range chain {
		h, err := q.find(n, n+k)
		switch {
		case err != nil && codec.UnlessCorrupt(err) != nil && !errors.Is(err, ErrOp):
			return err
		case err != nil && failed == nil && len(chain) > 1:
			failed = fmt.Errorf("lease %d: %w", k, err)
		case err != nil && failed == nil:
			failed = err
		case h == nil:
			lost = append(lost, k)
		}
		q.found = append(q.found, h)
	}

	if failed != nil || lost == nil {
		return failed
	}
	return q.lostLeases(chain, lost)
}

// find returns the item of the operation at place n, in a chain that begins at place first: nil if
// its token does not hold. The error is for the operation, ErrCorrupt, or one of the store.
func (q *queueSettlements) find(first, n int) (*codec.Record, error) {
	i := q.indexes[n]
	if err := q.results[i].Err; err != nil {
		return nil, err
	}

	op, read := &q.ops[i], &q.reads[n]
	id := &op.Token.ID
	switch before := q.done[*id]; {
	case before > first: // another one of the chain ends the lease
		return nil, nil
	case before > 0: // this transaction may have moved the item, so the read is stale
		*read = q.lookUp(op)
		read.LookUpReady(q.tx, q.l, id)
	}

	h, err := read.Find(q.l, &op.Token)
	if h != nil {
		q.done[*id] = n + 1
	}
	return h, err
}

// lostLeases returns the error of a chain in which some operations, given by their numbers, have
// lost their leases. For acknowledgements it reads whether they were made before. The error may be
// one of the store.
func (q *queueSettlements) lostLeases(chain, lost []int) error {
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

// doneBefore returns which of the operations of a chain, given by their number in it, are
// acknowledgements of finished jobs with the token that finished them. What it reads without
// conflict stays true: that lease is over for good. The error is one of the store.
func (q *queueSettlements) doneBefore(chain, lost []int) (done []int, err error) {
	type read struct {
		op         *Op
		job, first kv.Future[[]byte]
	}
	reads := make([]read, len(lost))
	for n, k := range lost {
		r := &reads[n]
		r.op = &q.ops[chain[k]]
		if id := &r.op.Token.ID; r.op.Kind != OpAck || q.l.Fifo && id.Priority != 0 {
			r.op = nil
		} else if codec.Moved(id) {
			r.job = q.snapshot.Get(q.l.FinishedPlaceKey(id))
		} else {
			r.first = q.snapshot.Get(q.l.FinishedKey(id, 0))
		}
	}

	for n := range reads {
		r := &reads[n]
		if r.job == nil {
			continue
		}
		value, err := r.job.Get()
		if err != nil {
			return nil, err
		}
		if job, err := codec.ParseAlias(value); err == nil {
			r.first = q.snapshot.Get(q.l.FinishedKey(&job, 0))
		}
	}

	for n := range reads {
		r := &reads[n]
		if r.first == nil {
			continue
		}
		part, err := r.first.Get()
		if err != nil {
			return nil, err
		}
		if f, err := codec.ParseFinishedHead(part); err == nil && f.Fence == r.op.Token.Fence {
			done = append(done, lost[n])
		}
	}
	return done, nil
}
