package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queuePeeks is the peeks at one end of a queue, which share one result. They run after all else,
// so they see what the transaction has pushed and popped.
type queuePeeks struct {
	familyOps
	end  End
	walk state.Cursor
}

// runPeeks reads the first items of a few queues at a time.
func (t *txn) runPeeks(peeks []*queuePeeks) error {
	for some := range slices.Chunk(peeks, t.returned.AtOnce()) {
		if t.returned.Refused {
			for _, q := range some {
				q.failAll(q.indexes, state.ErrNoRoom)
			}
			continue
		}

		share := t.returned.Share(1, len(some))
		for _, q := range some {
			q.walk = state.Walk(q.l, q.reader(), q.end, 1, share, 1)
		}

		// Peek also starts to read the rest of the item.
		for _, q := range some {
			if _, err := q.walk.Peek(); err != nil {
				return err
			}
		}
		if err := state.Each(some, (*queuePeeks).finish); err != nil {
			return err
		}
	}
	return nil
}

// reader returns the reader of the peeks. It reads without conflict, unless the queue also has
// pops, operations with tokens or edits.
func (q *queuePeeks) reader() kv.Reader {
	// A peek after those takes place when the transaction commits, so until then nobody may push an
	// item before the one it returned.
	if q.takes && q.tx != nil {
		return q.tx
	}
	return q.snapshot
}

// finish waits for the rest of the item and sets the results.
func (q *queuePeeks) finish() error {
	item, err := q.complete()
	for _, i := range q.indexes {
		q.results[i].Item = item
	}
	return q.failOps(err, q.indexes...)
}

// complete returns the first item with the rest of it. The error is for the peeks, or one of the
// store.
func (q *queuePeeks) complete() (Item, error) {
	s, err := q.walk.Peek()
	switch {
	case err != nil:
		return Item{}, err
	case s == nil && q.due.Behind(): // something may come back next
		return Item{}, state.ErrNotYet
	case s == nil:
		return Item{}, ErrEmpty
	}

	if q.due.More || q.due.Err != nil { // otherwise all that has expired is gone
		expired, err := s.Expired(q.reader(), q.l, q.now, q.returned.Page())
		if err == nil && expired {
			err = q.moreExpired()
		}
		if err != nil {
			return Item{}, err
		}
	}

	// Reading an item that this transaction has added conflicts with nothing, because it is not in
	// the store. Until the transaction commits, nobody may push an item before it.
	if q.pushed && q.added(&s.Item.ID) || q.outgoing.Fills(q.l) {
		q.tx.AddReadConflict(q.l.Before(s.Pair.Key, q.end))
	}
	return s.Whole(q.reader(), q.l, &q.returned)
}

// added reports whether an operation of this transaction has added the item. Pushes beside a peek
// of another item must not conflict with pushes of other transactions.
func (q *queuePeeks) added(id *ID) bool {
	for i := range q.ops {
		if q.ops[i].Kind.Writes() && q.results[i].Item.ID == *id {
			return true
		}
	}
	return false
}
