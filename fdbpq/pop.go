package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// pops is the pops of one queue.
type pops struct {
	indexes [2][]int // into txOps.ops, by End
	ends    ends
	due     due
}

// pop runs the pops from both ends. It reads both ends before it removes anything; where
// they overlap, the front takes first.
func (t *txOps) pop() error {
	queues := make([]*queueOps, 0, len(t.queues)) // that have pops
	for _, q := range t.queues {
		if q.pops != nil {
			q.pops.begin(t.tx, q.l)
			queues = append(queues, q)
		}
	}
	var short []*queueOps
	for _, q := range queues {
		if err := q.pops.ends.arrive(); err != nil {
			return err
		}
		if q.pops.isShort(q.l) {
			short = append(short, q)
		}
	}
	if err := t.refill(short); err != nil {
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

// begin starts to read as many items as there are pops, and what is due as well if the
// pops will probably need it.
func (p *pops) begin(tx kv.Transaction, l *layout) {
	p.beginItems(tx, l)
	if l.cameShort.Load() {
		p.due.begin()
	}
}

func (p *pops) beginItems(tx kv.Transaction, l *layout) {
	p.ends = l.walkEnds(tx, [2]int{len(p.indexes[Front]), len(p.indexes[Back])})
}

// tooFew reports whether there are fewer items than pops at that end.
func (p *pops) tooFew(end End) bool { return len(p.ends.walks[end].items) < len(p.indexes[end]) }

// isShort reports whether there are fewer items than pops at either end, and remembers
// it for the next pops.
func (p *pops) isShort(l *layout) bool {
	short := p.tooFew(Front) || p.tooFew(Back)
	if l.cameShort.Load() != short {
		l.cameShort.Store(short)
	}
	return short
}

// refill brings back what is due in the queues that have too few items, and reads the
// items again where some came back.
func (t *txOps) refill(short []*queueOps) error {
	if len(short) == 0 {
		return nil
	}
	dues := make([]*due, len(short))
	for i, q := range short {
		dues[i] = &q.pops.due
	}
	if err := bringBack(dues); err != nil {
		return err
	}
	for _, q := range short {
		if q.pops.due.returned {
			q.pops.beginItems(t.tx, q.l)
		}
	}
	for _, q := range short {
		if err := q.pops.ends.arrive(); err != nil {
			return err
		}
	}
	return nil
}

// takeItems gives each pop from one end an item.
func (t *txOps) takeItems(q *queueOps, end End) error {
	p := q.pops
	indexes := p.indexes[end]
	if p.due.err != nil && p.tooFew(end) {
		return failOps(t.results, indexes, p.due.err)
	}
	for n, i := range indexes {
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
		p.ends.noteTaken(end, s)
		q.ledger.take(s)
		t.popped = append(t.popped, takenItem{q.l, s})
		t.results[i].Item = s.item
	}
	return nil
}
