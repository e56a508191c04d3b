package fdbpq

import (
	"cmp"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// peeks is the peeks at one queue. Those at the same end share one result.
type peeks struct {
	indexes [2][]int // into txOps.ops, by End
	walks   [2]cursor
	items   [2]*stored // nil if there is no item, or no peek at that end
	errs    [2]error   // by End: errNotYet if it is not known which item is the first
}

// peek runs the peeks, after the pushes and pops.
func (t *txOps) peek() error {
	queues := make([]*queueOps, 0, len(t.queues)) // that have peeks
	for _, q := range t.queues {
		if q.peeks != nil {
			q.peeks.begin(t.peekReader(q), q.l)
			queues = append(queues, q)
		}
	}
	for _, q := range queues {
		if err := q.peeks.find(t.now, &q.due); err != nil {
			return err
		}
	}
	for _, q := range queues {
		t.guardPeeks(q)
		if err := q.peeks.finish(t.results); err != nil {
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
		if _, own := q.pushed[s.item.ID]; own || t.dead.owns(q.l, &s.item.ID) {
			t.tx.AddReadConflict(q.l.before(s.pair.Key, End(end)))
		}
	}
}

// before returns the range of key and of all keys that come before it from that end.
func (l *layout) before(key []byte, end End) kv.Range {
	r := l.itemRange()
	if end == Back {
		r.Begin = key
	} else {
		r.End = kv.SingleKey(key).End
	}
	return r
}

// begin starts to read the first item at each end that has peeks.
func (p *peeks) begin(r kv.Reader, l *layout) {
	for end, indexes := range p.indexes {
		if len(indexes) > 0 {
			p.walks[end] = l.walk(r, End(end), 1)
		}
	}
}

// find waits for the items, and starts to read the rest of them. It steps over those that have expired by now, if
// there may be any because not all that is due was handled.
func (p *peeks) find(now time.Time, d *due) error {
	for end := range p.walks {
		walk := &p.walks[end]
		next := walk.next
		if d.more || d.err != nil {
			next = func() (*stored, error) { return walk.nextLive(now) }
		}
		s, err := next()
		if errors.Is(err, errNotYet) {
			p.errs[end] = err
			continue
		}
		if err != nil {
			return err
		}
		if s != nil {
			s.beginRead(walk.r, walk.l)
		} else if d.behind() { // something may come back next
			p.errs[end] = errNotYet
		}
		p.items[end] = s
	}
	return nil
}

// finish waits for the rest of the items and sets the results.
func (p *peeks) finish(results []Result) error {
	for end, indexes := range p.indexes {
		result := Result{Err: cmp.Or(p.errs[end], ErrEmpty)}
		if s := p.items[end]; s != nil {
			if err := s.finishRead(); err != nil {
				return err
			}
			if result = (Result{Item: s.item}); s.err != nil {
				result = Result{Err: s.err}
			}
		}
		for _, i := range indexes {
			results[i] = result
		}
	}
	return nil
}
