package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Progress is how far an operation on many items has come that takes several transactions.
type Progress struct {
	// Done is how many items it has removed or sent back so far.
	Done int64
	// Next is where it goes on, "" once it has come to its end.
	Next string
}

// sweep walks items of a queue for an OpPurge or OpRedrive, in the order of their keys. It reads
// without conflict, and what it changes conflicts item by item, so it never conflicts with pushes.
type sweep struct {
	t     *txOps
	l     *codec.Layout
	rest  kv.Range
	last  []byte // the key that it has walked last
	ended bool   // there are no more
	done  int64  // items that were changed
	bytes int    // of what was read
}

// newSweep returns a sweep of the items in a range of keys, which goes on where an earlier one has
// ended.
func (t *txOps) newSweep(l *codec.Layout, keys kv.Range, from Progress) *sweep {
	if from.Next != "" {
		keys.Begin = kv.SingleKey(append([]byte(l.Prefix), from.Next...)).End
	}
	return &sweep{t: t, l: l, rest: keys}
}

// each calls visit for the items, until the transaction has walked enough, or visit returns false,
// which leaves the item to the next transaction. Before that it calls prepare for a page of items.
func (s *sweep) each(prepare func([]kv.KeyValue), visit func(kv.KeyValue) (bool, error)) error {
	walked := 0
	for size := state.FirstSweepPage; walked < state.SweepItems && s.bytes < state.SweepBytes; size = min(4*size, state.MaxSweepPage) {
		o := kv.RangeOptions{Limit: min(size, s.t.returned.AtOnce()), Bytes: state.SweepBytes - s.bytes}
		pairs, err := s.t.tx.Snapshot().GetRange(s.rest, o).Get()
		if err != nil {
			return err
		}
		prepare(pairs)
		for _, pair := range pairs {
			if more, err := visit(pair); err != nil || !more {
				return err
			}
			s.last = pair.Key
			walked, s.bytes = walked+1, s.bytes+len(pair.Value)
		}
		if !o.Full(pairs) {
			s.ended = true
			break
		}
		s.rest.Begin = kv.SingleKey(s.last).End
	}
	return nil
}

// noteDone records that an item was changed. The transaction conflicts with whoever else changes it.
func (s *sweep) noteDone(key []byte) {
	s.t.tx.AddReadConflict(kv.SingleKey(key))
	s.done++
}

// end sets the result, once each has returned with the given error. An item that cannot be read
// ends the transaction's share, and fails the operation only if there was nothing before it.
func (s *sweep) end(op *Op, result *Result, err error) error {
	if err != nil && (!errors.Is(err, ErrCorrupt) || s.last == nil) {
		return err
	}
	result.Progress.Done = op.Progress.Done + s.done
	switch {
	case s.ended || op.Limit > 0 && result.Progress.Done >= op.Limit:
	case s.last == nil:
		result.Err = state.ErrNoRoom
	default:
		result.Progress.Next = string(s.last[len(s.l.Prefix):])
	}
	return nil
}
