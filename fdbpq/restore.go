package fdbpq

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// takenItem is an item that was taken, and its queue.
type takenItem struct {
	l *layout
	*Item
}

// taken returns an item that is taken, whose history is given as stored, with all that is
// needed to restore it. Most items need nothing but themselves.
func (s *stored) taken(l *layout, past []byte) takenItem {
	switch {
	case !s.item.ID.ours():
		keepFor(&s.item, &kept{value: s.pair.Value, past: past})
	case past != nil:
		keepFor(&s.item, &kept{past: past})
	}
	return takenItem{l: l, Item: &s.item}
}

// restoreOverhead is about the number of bytes that restoring an item takes in a transaction
// besides what is stored: conflict ranges and counters. Long keys take more.
const restoreOverhead = 500

// restoreSize is about the number of bytes that restoring the item takes in a transaction.
func (i *takenItem) restoreSize() int { return i.Size() + len(i.l.prefix) + restoreOverhead }

// occupied is the keys that an item may have, being read: to restore it there would
// overwrite it.
type occupied struct{ held, item kv.Future[[]byte] }

// readOccupied starts to read whether an item is in the queue.
func (l *layout) readOccupied(r kv.Reader, id *ID) occupied {
	return occupied{r.Get(l.heldKey(id)), r.Get(l.itemKey(id))}
}

// check returns ErrExists if the item is in the queue.
func (o *occupied) check(id *ID) error {
	exists, err := o.any()
	if err == nil && exists {
		err = fmt.Errorf("%w: %s", ErrExists, id)
	}
	return err
}

// any reports whether the item is in the queue.
func (o *occupied) any() (bool, error) {
	for _, future := range []kv.Future[[]byte]{o.held, o.item} {
		if value, err := future.Get(); err != nil || value != nil {
			return value != nil, err
		}
	}
	return false, nil
}

// restores is the restores of one queue. They run before the pops, which get what they put
// back.
type restores struct {
	indexes []int // into txOps.ops
	reads   []occupied
}

// restore runs the restores.
func (t *txOps) restore() error {
	for _, q := range t.queues {
		if q.restores == nil {
			continue
		}
		q.ledger.beginSettings()
		for _, i := range q.restores.indexes {
			q.restores.reads = append(q.restores.reads, q.l.readOccupied(t.tx, &t.ops[i].Item.ID))
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
				*read = q.l.readOccupied(t.tx, &item.ID)
			}
			done[item.ID] = true
			err := read.check(&item.ID)
			switch {
			case errors.Is(err, ErrExists):
				t.results[i].Err = err
			case err != nil:
				return err
			default:
				if err := failOps(t.results, []int{i}, q.ledger.restore(item)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// restoresOf returns the items that the operations are to restore.
func restoresOf(ops []Op) (items []takenItem) {
	for i := range ops {
		if op := &ops[i]; op.Kind == OpRestore && op.check(op.Queue.layout()) == nil {
			item := *op.Item // the caller's
			items = append(items, takenItem{l: op.Queue.layout(), Item: &item})
		}
	}
	return items
}
