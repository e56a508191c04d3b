package fdbpq

import (
	"cmp"
	"errors"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queuePeeks is the peeks of one queue. Those at the same end share one result. They run after all
// else, so they see what the transaction has pushed and popped.
type queuePeeks struct {
	*queueTxn
	indexes [2][]int // into txn.ops, by End
	walks   [2]state.Cursor
	items   [2]*state.Stored // nil if there is no item, or no peek at that end
	errs    [2]error         // by End: why it is not known which item is the first
}

// peeks holds the peeks of all queues.
type peeks []*queuePeeks

// run reads the first items of a few queues at a time.
func (p peeks) run() error {
	if len(p) == 0 {
		return nil
	}
	returned := &p[0].returned
	for some := range slices.Chunk(p, returned.AtOnce()) {
		if returned.Refused {
			for _, q := range some {
				q.failAll(q.indexes[Front], state.ErrNoRoom)
				q.failAll(q.indexes[Back], state.ErrNoRoom)
			}
			continue
		}

		share := returned.Share(1, len(some))
		for _, q := range some {
			q.beginWalks(share)
		}
		if err := each(some, (*queuePeeks).findItems); err != nil {
			return err
		}
		if err := each(some, (*queuePeeks).finish); err != nil {
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

// beginWalks starts to read the first item at each end that has peeks.
func (q *queuePeeks) beginWalks(bytes int) {
	r := q.reader()
	for end, indexes := range q.indexes {
		if len(indexes) > 0 {
			q.walks[end] = state.Walk(q.l, r, End(end), 1, bytes, 1)
		}
	}
}

// findItems waits for the items, and starts to read the rest of them.
func (q *queuePeeks) findItems() error {
	for end := range q.walks {
		walk := &q.walks[end]
		s, err := walk.Peek()
		if err != nil {
			return err
		}

		if s != nil {
			walk.BeginRead(s)
		} else if q.due.Behind() { // something may come back next
			q.errs[end] = state.ErrNotYet
		}
		q.items[end] = s
	}
	return nil
}

// finish waits for the rest of the items and sets the results.
func (q *queuePeeks) finish() error {
	for end, indexes := range q.indexes {
		if len(indexes) == 0 {
			continue
		}

		result := Result{Err: cmp.Or(q.errs[end], ErrEmpty)}
		if s := q.items[end]; s != nil {
			var err error
			result.Item, err = q.complete(s, End(end))
			if fatal := codec.UnlessCorrupt(err); fatal != nil && !errors.Is(err, ErrNoRoom) {
				return err
			}
			result.Err = err
		}
		for _, i := range indexes {
			q.results[i] = result
		}
	}
	return nil
}

// complete returns the first item from an end with the rest of it. The error is that of the peeks,
// which is ErrCorrupt or wraps ErrNoRoom, or one of the store.
func (q *queuePeeks) complete(s *state.Stored, end End) (Item, error) {
	if q.due.More || q.due.Err != nil { // otherwise all that has expired is gone
		expired, err := s.Expired(q.reader(), q.l, q.now, q.returned.Page())
		if err == nil && expired {
			err = q.moreExpired()
		}
		if err != nil {
			return Item{}, err
		}
	}

	// The item may be one that this transaction has added. Reading it conflicts with nothing, because
	// it is not in the store. Until the transaction commits, nobody may push an item before it.
	if q.pushed || q.dead.Reaches(q.l) {
		q.tx.AddReadConflict(q.l.Before(s.Pair.Key, end))
	}
	return s.Whole(q.reader(), q.l, &q.returned)
}
