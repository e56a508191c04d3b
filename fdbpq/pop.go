package fdbpq

import (
	"cmp"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pops is the pops and leases of one queue.
type pops struct {
	indexes [2][]int // into txOps.ops, by End
	ends    ends
	past    kv.Future[[]kv.KeyValue] // the first history of an item, if there is any
}

// pop runs the pops from both ends. It reads both ends before it removes anything; where
// they overlap, the front takes first.
func (t *txOps) pop() error {
	queues := make([]*queueOps, 0, len(t.queues)) // that have pops
	for _, q := range t.queues {
		if q.pops != nil {
			q.due.begin()
			q.pops.begin(t.tx, q.l)
			queues = append(queues, q)
		}
	}
	for _, q := range queues {
		if err := q.pops.ends.arrive(); err != nil {
			return err
		}
	}
	if err := t.refill(queues); err != nil {
		return err
	}
	for _, q := range queues {
		q.pops.ends.beginReads()
	}
	for _, q := range queues {
		for end := range q.pops.indexes {
			if err := t.takeItems(q, End(end)); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin starts to read as many items as there are pops, and whether any item has a
// history.
func (p *pops) begin(tx kv.Transaction, l *layout) {
	p.past = l.firstHistory(tx)
	p.ends = l.walkEnds(tx, [2]int{len(p.indexes[Front]), len(p.indexes[Back])})
}

// refill brings back what is due in the queues, and reads the items again where some came
// back.
func (t *txOps) refill(queues []*queueOps) error {
	dues := make([]*due, len(queues))
	for i, q := range queues {
		dues[i] = &q.due
	}
	if err := bringBack(dues); err != nil {
		return err
	}
	for _, q := range queues {
		if q.due.returned {
			q.pops.begin(t.tx, q.l)
		}
	}
	for _, q := range queues {
		if err := q.pops.ends.arrive(); err != nil {
			return err
		}
	}
	return nil
}

// firstHistory starts to read the first history of an item in the queue. If there is none,
// which is usual, pops need not read those of their items. It reads without conflict: see
// readHistory.
func (l *layout) firstHistory(tx kv.Transaction) kv.Future[[]kv.KeyValue] {
	return tx.Snapshot().GetRange(within(l.key(kindHistory, 1)), kv.RangeOptions{Limit: 1})
}

// readHistory starts to read the history of an item that is to be taken. It reads without
// conflict, because an item and its history are written together.
func (l *layout) readHistory(tx kv.Transaction, id *ID) kv.Future[[]byte] {
	return tx.Snapshot().Get(l.historyKey(id))
}

// takeItems gives each pop and lease from one end an item.
func (t *txOps) takeItems(q *queueOps, end End) error {
	p := q.pops
	indexes := p.indexes[end]
	pasts, err := p.past.Get()
	if err != nil {
		return err
	}
	room := 0 // what is left of MaxBytes
	for n, i := range indexes {
		op := &t.ops[i]
		if !op.Follows || i == 0 || t.ops[i-1].Kind != op.Kind {
			room = op.MaxBytes
		}
		if op.Follows && i > 0 && t.results[i-1].Err != nil {
			t.results[i].Err = t.results[i-1].Err
			continue
		}
		s, err := p.ends.next(end)
		if err != nil {
			return err
		}
		if s == nil {
			t.results[i].Err = cmp.Or(q.due.err, ErrEmpty)
			continue
		}
		// Where the pages of both ends overlap, beginReads read only the front's copies.
		// If the pops from the front fail, those from the back get to the others.
		s.beginRead(t.tx, q.l)
		if err := s.finishRead(); err != nil {
			return err
		}
		if s.err != nil {
			// The item stays, and so do those behind it: serving them would break
			// the order.
			return failOps(t.results, indexes[n:], s.err)
		}
		if op.MaxBytes > 0 {
			if room -= s.item.Message.size(); room < 0 {
				p.ends.unread(end, s)
				t.results[i].Err = ErrMaxBytes
				continue
			}
		}
		if op.Kind == OpLease && !t.fits(s.pair.Value) {
			p.ends.unread(end, s)
			t.results[i].Err = errNoRoom
			continue
		}
		var past []byte
		if len(pasts) > 0 {
			if past, err = q.l.readHistory(t.tx, &s.item.ID).Get(); err != nil {
				return err
			}
		}
		if op.Kind == OpLease {
			if err := t.leaseItem(q, i, s, past); err != nil {
				return failOps(t.results, indexes[n:], err)
			}
			p.ends.noteTaken(end, s)
			continue
		}
		p.ends.noteTaken(end, s)
		t.results[i].Item = s.item
		q.ledger.take(s)
		q.ledger.forget(&s.item.ID, past)
		t.popped = append(t.popped, takenItem{q.l, s, past})
	}
	return nil
}
