package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueRestores is the restores of one queue. They run before the pops, which can have the items
// that come back.
type queueRestores struct {
	familyOps
	reads []state.Lookup
}

// runRestores finds out which items are in their queues, and puts the others back.
func runRestores(restores []*queueRestores) error {
	for _, q := range restores {
		q.ledger.BeginSettings()
		for _, i := range q.indexes {
			q.reads = append(q.reads, state.LookUp(q.l, q.tx, &q.ops[i].Item.ID))
		}
	}
	return state.Each(restores, (*queueRestores).finish)
}

// finish puts back the items of a queue that are not in it.
func (q *queueRestores) finish() error {
	restored := map[ID]bool{}
	for n, i := range q.indexes {
		item, read := q.ops[i].Item, &q.reads[n]
		if restored[item.ID] { // what was read is stale
			*read = state.LookUp(q.l, q.tx, &item.ID)
		}
		restored[item.ID] = true

		exists, err := read.Exists()
		if exists { // restoring it would overwrite it
			err = fmt.Errorf("%w: %s", ErrExists, item.ID)
		} else if err == nil {
			err = q.ledger.Restore(item)
		}
		if err = q.failOps(err, i); err != nil {
			return err
		}
	}
	return nil
}
