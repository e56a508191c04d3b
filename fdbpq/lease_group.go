package fdbpq

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// settleQueue runs the operations of the span of one queue, whose reads have begun.
func (t *txOps) settleQueue(q *queueOps) error {
	s := q.settlements
	if s.done == nil {
		s.done = make(map[ID]int, len(s.indexes))
	}
	n := s.from
	for group := range groups(t.ops, s.indexes[s.from:s.to]) {
		if err := t.settleGroup(q, n, group); err != nil {
			return err
		}
		n += len(group)
	}
	clear(s.reads[s.from:s.to]) // they hold values
	clear(s.burials[s.from:s.to])
	return nil
}

// settleGroup runs operations that are done together or not at all; the first has the place n in
// settlements.indexes. A group of several is acknowledgements alone.
func (t *txOps) settleGroup(q *queueOps, n int, group []int) error {
	failed, err := t.findGroup(q, n, group)
	if err != nil {
		return err
	}
	if failed != nil {
		for _, i := range group {
			t.results[i].Err = failed
		}
		return nil
	}
	s := q.settlements
	places := 0
	for k, i := range group {
		err := t.settleOne(q, &t.ops[i], s.found[k], s.burials[n+k], &t.results[i])
		if err = failOps(t.results, []int{i}, err); err != nil {
			return err
		}
		if t.results[i].ended {
			places++
		}
	}
	for i := group[len(group)-1] + 1; places > 0 && i < len(t.ops) && t.ops[i].Kind == OpLease && t.ops[i].Follows; i++ {
		t.results[i].place = true
		places--
	}
	return nil
}

// findGroup finds the items of a group. It returns why the group fails, nil if it does not. The error is
// one of the store.
func (t *txOps) findGroup(q *queueOps, n int, group []int) (failed, err error) {
	s := q.settlements
	s.found = s.found[:0]
	var lost []int
	for k := range group {
		h, err := s.find(t, q, n, n+k)
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
		s.found = append(s.found, h)
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

// find returns the item of the operation with place n in indexes, which is in a group that begins with the place
// first: nil if its token does not hold. The error is that of the operation, ErrCorrupt, or one of the
// store.
func (s *settlements) find(t *txOps, q *queueOps, first, n int) (*state.HeldItem, error) {
	i := s.indexes[n]
	if err := t.results[i].Err; err != nil {
		return nil, err
	}
	op, read := &t.ops[i], &s.reads[n]
	id := &op.Token.ID
	switch before := s.done[*id]; {
	case before > first: // one of the same group ends the lease
		return nil, nil
	case before > 0: // this transaction may have moved the item, so the read is stale
		*read = q.ledger.ReadHeld(id)
		read.ReadReady(t.tx, q.l, id)
	}
	h, err := read.Find(q.l, &op.Token)
	if h != nil {
		s.done[*id] = n + 1
	}
	return h, err
}
