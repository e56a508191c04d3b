package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// pops is the pops of one queue.
type pops struct {
	places [2][]int // in batch.ops, by End
	items  ends
	due    due
}

// pop serves the pops of both ends. Both ends are read before anything is
// removed: if they overlap, the front takes first.
func (b *batch) pop() error {
	queues := make([]*queueOps, 0, len(b.queues)) // that have pops
	for _, q := range b.queues {
		if q.pops != nil {
			q.pops.begin(b.tx, q.l)
			queues = append(queues, q)
		}
	}
	var short []*queueOps
	for _, q := range queues {
		if err := q.pops.items.arrive(); err != nil {
			return err
		}
		if q.pops.isShort(q.l) {
			short = append(short, q)
		}
	}
	if err := b.refill(short); err != nil {
		return err
	}
	for _, q := range queues {
		q.pops.items.readParts()
	}
	for _, q := range queues {
		for end := range q.pops.places {
			if err := b.take(q, End(end)); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin begins to read as many items as there are pops. What is due is read with
// them if it will probably be needed.
func (p *pops) begin(tx kv.Transaction, l *layout) {
	p.beginItems(tx, l)
	if l.cameShort.Load() {
		p.due.begin()
	}
}

func (p *pops) beginItems(tx kv.Transaction, l *layout) {
	p.items = l.walkEnds(tx, [2]int{len(p.places[Front]), len(p.places[Back])})
}

// tooFew reports whether there are not enough items for the pops from that end.
func (p *pops) tooFew(end End) bool { return len(p.items.walks[end].items) < len(p.places[end]) }

// isShort reports whether there are not enough items from one of the ends, and notes
// it for the next pops.
func (p *pops) isShort(l *layout) bool {
	short := p.tooFew(Front) || p.tooFew(Back)
	if l.cameShort.Load() != short {
		l.cameShort.Store(short)
	}
	return short
}

// refill brings back what is due in queues that have too few items for their pops,
// and reads again where items have come back.
func (b *batch) refill(short []*queueOps) error {
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
			q.pops.beginItems(b.tx, q.l)
		}
	}
	for _, q := range short {
		if err := q.pops.items.arrive(); err != nil {
			return err
		}
	}
	return nil
}

// take gives the items of one end to its pops, one each.
func (b *batch) take(q *queueOps, end End) error {
	p := q.pops
	places := p.places[end]
	if p.due.err != nil && p.tooFew(end) {
		return failed(b.results, places, p.due.err)
	}
	for n, i := range places {
		s, err := p.items.next(end)
		if err != nil {
			return err
		}
		if s == nil {
			b.results[i].Err = ErrEmpty
			continue
		}
		s.readParts(b.tx, q.l)
		if err := s.wait(); err != nil {
			return err
		}
		if s.err != nil {
			// The item stays, and so do those behind it: an order with holes
			// would be no order.
			return failed(b.results, places[n:], s.err)
		}
		p.items.take(end, s)
		q.ledger.take(s)
		b.popped = append(b.popped, inQueue{q.l, s})
		b.results[i].Item = s.item
	}
	return nil
}
