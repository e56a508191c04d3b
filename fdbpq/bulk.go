package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// itemWalk walks items of a queue for an OpPurge or OpRedrive, in the order of their keys. It reads
// without conflict, and what it changes conflicts item by item, so it never conflicts with pushes.
type itemWalk struct {
	*queueTxn
	rest  kv.Range
	last  []byte // the key that it has walked last
	ended bool   // there are no more
	done  int64  // items that were changed
	bytes int    // of what was read
}

// newWalk returns a walk of the items in a range of keys, which goes on where an earlier one has
// ended.
func (q *queueTxn) newWalk(keys kv.Range, from Progress) *itemWalk {
	if from.Next != "" {
		keys.Begin = kv.SingleKey(append([]byte(q.l.Prefix), from.Next...)).End
	}
	return &itemWalk{queueTxn: q, rest: keys}
}

// each calls visit for the items, until the transaction has walked enough, or visit returns false,
// which leaves the item to the next transaction. Before that it calls prepare for a page of items.
func (w *itemWalk) each(prepare func([]kv.KeyValue), visit func(kv.KeyValue) (bool, error)) error {
	walked := 0
	for size := state.FirstSweepPage; walked < state.SweepItems && w.bytes < state.SweepBytes; size = min(4*size, state.MaxSweepPage) {
		o := kv.RangeOptions{Limit: min(size, w.returned.AtOnce()), Bytes: state.SweepBytes - w.bytes}
		pairs, err := w.snapshot.GetRange(w.rest, o).Get()
		if err != nil {
			return err
		}

		prepare(pairs)
		for _, pair := range pairs {
			if more, err := visit(pair); err != nil || !more {
				return err
			}
			w.last = pair.Key
			walked, w.bytes = walked+1, w.bytes+len(pair.Value)
		}

		if !o.Full(pairs) {
			w.ended = true
			break
		}
		w.rest.Begin = kv.SingleKey(w.last).End
	}
	return nil
}

// noteDone records that an item was changed. The transaction conflicts with whoever else changes
// it.
func (w *itemWalk) noteDone(key []byte) {
	w.tx.AddReadConflict(kv.SingleKey(key))
	w.done++
}

// setResult sets the result of operation i, once each has returned with the given error. An item
// that cannot be read ends the transaction's share, and fails the operation only if there was
// nothing before it.
func (w *itemWalk) setResult(i int, err error) error {
	if err != nil && (!errors.Is(err, ErrCorrupt) || w.last == nil) {
		return err
	}

	op, result := &w.ops[i], &w.results[i]
	result.Progress.Done = op.Progress.Done + w.done
	switch {
	case w.ended || op.Limit > 0 && result.Progress.Done >= op.Limit:
	case w.last == nil:
		result.Err = state.ErrNoRoom
	default:
		result.Progress.Next = string(w.last[len(w.l.Prefix):])
	}
	return nil
}
