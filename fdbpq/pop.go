package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

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
	p.beginItems(tx, l)
	// An item and its history are written together, so whoever changes the history of
	// an item that is popped here conflicts with the pop.
	p.past = tx.Snapshot().GetRange(within(l.key(kindHistory, 1)), kv.RangeOptions{Limit: 1})
}

func (p *pops) beginItems(tx kv.Transaction, l *layout) {
	p.ends = l.walkEnds(tx, [2]int{len(p.indexes[Front]), len(p.indexes[Back])})
}

// tooFew reports whether there are fewer items than pops at that end.
func (p *pops) tooFew(end End) bool { return len(p.ends.walks[end].items) < len(p.indexes[end]) }

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
			q.pops.beginItems(t.tx, q.l)
			q.pops.past = t.tx.Snapshot().GetRange(within(q.l.key(kindHistory, 1)), kv.RangeOptions{Limit: 1})
		}
	}
	for _, q := range queues {
		if err := q.pops.ends.arrive(); err != nil {
			return err
		}
	}
	return nil
}

// takeHistory removes the history of an item that is taken, and returns it.
func (t *txOps) takeHistory(l *layout, id *ID) (history, error) {
	key := l.historyKey(id)
	value, err := t.tx.Snapshot().Get(key).Get()
	if err != nil || value == nil {
		return history{}, err
	}
	t.tx.Clear(key)
	return parseHistory(id, value)
}

// takeItems gives each pop and lease from one end an item.
func (t *txOps) takeItems(q *queueOps, end End) error {
	p := q.pops
	indexes := p.indexes[end]
	if q.due.err != nil && p.tooFew(end) {
		return failOps(t.results, indexes, q.due.err)
	}
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
			t.results[i].Err = ErrEmpty
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
		var past history
		if len(pasts) > 0 {
			if past, err = t.takeHistory(q.l, &s.item.ID); err != nil {
				if err = failOps(t.results, indexes[n:], err); err != nil {
					return err
				}
				return nil
			}
		}
		p.ends.noteTaken(end, s)
		t.results[i].Item = s.item
		if op.Kind == OpLease {
			t.leaseItem(q, i, s, past)
			continue
		}
		q.ledger.take(s)
		t.popped = append(t.popped, takenItem{q.l, s, past})
	}
	return nil
}
