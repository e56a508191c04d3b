package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// restores is the restores of one queue. They run before the pops, which get what they put
// back.
type restores struct {
	indexes []int // into txOps.ops
	reads   []state.Occupied
}

// restore runs the restores.
func (t *txOps) restore() error {
	for _, q := range t.queues {
		if q.restores == nil {
			continue
		}
		q.ledger.BeginSettings()
		for _, i := range q.restores.indexes {
			q.restores.reads = append(q.restores.reads, state.ReadOccupied(q.l, t.tx, &t.ops[i].Item.ID))
		}
	}
	for _, q := range t.queues {
		if q.restores == nil {
			continue
		}
		done := map[ID]bool{} // their reads are stale
		for n, i := range q.restores.indexes {
			item, read := t.ops[i].Item, &q.restores.reads[n]
			if done[item.ID] {
				*read = state.ReadOccupied(q.l, t.tx, &item.ID)
			}
			done[item.ID] = true
			err := read.Check(&item.ID)
			switch {
			case errors.Is(err, ErrExists):
				t.results[i].Err = err
			case err != nil:
				return err
			default:
				if err := failOps(t.results, []int{i}, q.ledger.Restore(item)); err != nil {
					return err
				}
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
