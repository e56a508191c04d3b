package fdbpq

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// runSpan runs the operations of the span, whose reads have begun.
func (q *queueSettlements) runSpan() error {
	if q.done == nil {
		q.done = make(map[ID]int, len(q.indexes))
	}

	n := q.from
	for group := range groups(q.ops, q.indexes[q.from:q.to]) {
		if err := q.runGroup(n, group); err != nil {
			return err
		}
		n += len(group)
	}

	clear(q.reads[q.from:q.to]) // they hold values
	clear(q.burials[q.from:q.to])
	return nil
}

// runGroup runs operations that are done together or not at all; the first has the place n in
// indexes. A group of several is acknowledgements alone.
func (q *queueSettlements) runGroup(n int, group []int) error {
	failed, err := q.findGroup(n, group)
	if err != nil {
		return err
	}
	if failed != nil {
		q.failAll(group, failed)
		return nil
	}

	ended := 0
	for k, i := range group {
		err := q.settle(i, q.found[k], q.burials[n+k])
		if err = q.failOps(err, i); err != nil {
			return err
		}
		if q.results[i].ended {
			ended++
		}
	}
	q.keepPlaces(group[len(group)-1]+1, ended)
	return nil
}

// keepPlaces keeps the places of leases that have ended for the OpLeases that follow, from index i
// on.
func (q *queueSettlements) keepPlaces(i, ended int) {
	for ; ended > 0 && i < len(q.ops) && q.ops[i].Kind == OpLease && q.ops[i].Follows; i++ {
		q.results[i].place = true
		ended--
	}
}

// findGroup finds the items of a group. It returns why the group fails, nil if it does not. The
// error is one of the store.
func (q *queueSettlements) findGroup(n int, group []int) (failed, err error) {
	q.found = q.found[:0]
	var lost []int
	for k := range group {
		h, err := q.find(n, n+k)
		switch {
		case err != nil && codec.UnlessCorrupt(err) != nil && !errors.Is(err, ErrOp):
			return nil, err
		case err != nil && failed == nil && len(group) > 1:
			failed = fmt.Errorf("lease %d: %w", k, err)
		case err != nil && failed == nil:
			failed = err
		case h == nil:
			lost = append(lost, k)
		}
		q.found = append(q.found, h)
	}

	switch {
	case failed != nil || lost == nil:
		return failed, nil
	case len(group) > 1:
		return &LostLeases{Lost: lost, Of: len(group)}, nil
	default:
		return ErrLeaseLost, nil
	}
}

// find returns the item of the operation with place n in indexes, which is in a group that begins
// with the place first: nil if its token does not hold. The error is that of the operation,
// ErrCorrupt, or one of the store.
func (q *queueSettlements) find(first, n int) (*codec.Record, error) {
	i := q.indexes[n]
	if err := q.results[i].Err; err != nil {
		return nil, err
	}

	op, read := &q.ops[i], &q.reads[n]
	id := &op.Token.ID
	switch before := q.done[*id]; {
	case before > first: // one of the same group ends the lease
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
