package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueRestores is the restores of one queue. They run before the pops, which get what they put
// back.
type queueRestores struct {
	*queueTxn
	indexes []int // into txn.ops
	reads   []state.Lookup
}

// restores is those of all queues.
type restores []*queueRestores

// run finds out which items are in their queues, and puts the others back.
func (r restores) run() error {
	for _, q := range r {
		q.ledger.BeginSettings()
		for _, i := range q.indexes {
			q.reads = append(q.reads, state.LookUp(q.l, q.tx, &q.ops[i].Item.ID))
		}
	}
	return each(r, (*queueRestores).finish)
}

func (q *queueRestores) finish() error {
	done := map[ID]bool{} // their reads are stale
	for n, i := range q.indexes {
		item, read := q.ops[i].Item, &q.reads[n]
		if done[item.ID] {
			*read = state.LookUp(q.l, q.tx, &item.ID)
		}
		done[item.ID] = true

		err := read.WantFree(&item.ID)
		switch {
		case errors.Is(err, ErrExists):
			q.results[i].Err = err
		case err != nil:
			return err
		default:
			if err := q.failOps(q.ledger.Restore(item), i); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoresOf returns the items that the operations are to restore.
func restoresOf(ops []Op) (items []state.TakenItem) {
	for i := range ops {
		if op := &ops[i]; op.Kind == OpRestore && op.check(op.Queue.Layout()) == nil {
			item := *op.Item // the caller's
			items = append(items, state.TakenItem{L: op.Queue.Layout(), Item: &item})
		}
	}
	return items
}
