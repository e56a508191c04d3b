package fdbpq

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// peeks is the peeks at one queue. Those at the same end share one result.
type peeks struct {
	indexes [2][]int // into txOps.ops, by End
	walks   [2]state.Cursor
	items   [2]*state.Stored // nil if there is no item, or no peek at that end
	errs    [2]error         // by End: why it is not known which item is the first
}

// peek runs the peeks, after the pushes and pops.
func (t *txOps) peek() error {
	return eachSome(t.queues, &t.returned, t.results, func(queues []*queueOps, share int) error {
		for _, q := range queues {
			q.peeks.begin(t.peekReader(q), q.l, share)
		}
		for _, q := range queues {
			if err := q.peeks.find(t.now, &q.due); err != nil {
				return err
			}
		}
		for _, q := range queues {
			t.guardPeeks(q)
			if err := q.peeks.finish(&t.returned, t.results); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachSome calls do for those of the queues that have peeks, a few at a time, with the bytes that each may read
// at once.
func eachSome(queues []*queueOps, returned *state.ItemRoom, results []Result, do func(queues []*queueOps, share int) error) error {
	peeked := make([]*queueOps, 0, len(queues))
	for _, q := range queues {
		if q.peeks != nil {
			peeked = append(peeked, q)
		}
	}
	for some := range slices.Chunk(peeked, returned.AtOnce()) {
		if returned.Refused {
			for _, q := range some {
				refuse(results, q.peeks.indexes[Front])
				refuse(results, q.peeks.indexes[Back])
			}
			continue
		}
		if err := do(some, returned.Share(1, len(some))); err != nil {
			return err
		}
	}
	return nil
}

// peekReader returns a reader without conflicts, unless the queue also has pops, operations
// with tokens or edits. A peek after those takes place when the transaction commits, so until then
// nobody may push an item before the one it returned.
func (t *txOps) peekReader(q *queueOps) kv.Reader {
	if q.pops != nil || q.settlements != nil || q.edits != nil {
		return t.tx
	}
	return t.tx.Snapshot()
}

// guardPeeks adds the conflicts of peeks that return an item of this transaction's own,
// for the same reason.
func (t *txOps) guardPeeks(q *queueOps) {
	for end, s := range q.peeks.items {
		if s == nil {
			continue
		}
		if _, own := q.pushed[s.Item.ID]; own || t.dead.Owns(q.l, &s.Item.ID) {
			t.tx.AddReadConflict(q.l.Before(s.Pair.Key, End(end)))
		}
	}
}

// begin starts to read the first item at each end that has peeks.
func (p *peeks) begin(r kv.Reader, l *codec.Layout, bytes int) {
	for end, indexes := range p.indexes {
		if len(indexes) > 0 {
			p.walks[end] = state.Walk(l, r, End(end), 1, bytes, 1)
		}
	}
}

// find waits for the items, and starts to read the rest of them. It steps over those that have expired by now, if
// there may be any because not all that is due was handled.
func (p *peeks) find(now time.Time, d *due.Due) error {
	for end := range p.walks {
		walk := &p.walks[end]
		next := walk.Next
		if d.More || d.Err != nil {
			next = func() (*state.Stored, error) { return walk.NextLive(now) }
		}
		s, err := next()
		if errors.Is(err, state.ErrMoreExpired) {
			p.errs[end] = cmp.Or(d.Err, err) // next time as many come first if what is due cannot be read
			continue
		}
		if err != nil {
			return err
		}
		if s != nil {
			s.BeginRead(walk.R, walk.L, walk.Asked.Bytes)
		} else if d.Behind() { // something may come back next
			p.errs[end] = state.ErrNotYet
		}
		p.items[end] = s
	}
	return nil
}

// finish waits for the rest of the items and sets the results.
func (p *peeks) finish(returned *state.ItemRoom, results []Result) error {
	for end, indexes := range p.indexes {
		if len(indexes) == 0 {
			continue
		}
		result := Result{Err: cmp.Or(p.errs[end], ErrEmpty)}
		if s := p.items[end]; s != nil {
			item, err := s.Whole(p.walks[end].R, p.walks[end].L, returned)
			if fatal := codec.UnlessCorrupt(err); fatal != nil && !errors.Is(err, ErrNoRoom) {
				return err
			}
			result = Result{Item: item, Err: err}
		}
		for _, i := range indexes {
			results[i] = result
		}
	}
	return nil
}
