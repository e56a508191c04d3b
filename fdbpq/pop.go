package fdbpq

// pop serves the pops of both ends. Both ends are read before anything is
// removed: if they overlap, the front takes first.
func (b *batch) pop() error {
	for _, q := range b.queues {
		q.beginPops(b)
	}
	var short []*queueOps
	for _, q := range b.queues {
		if err := q.items.arrive(); err != nil {
			return err
		}
		if q.notePops() {
			short = append(short, q)
		}
	}
	if err := b.refill(short); err != nil {
		return err
	}
	for _, q := range b.queues {
		q.items.readParts()
	}
	for _, q := range b.queues {
		for end := range q.pops {
			if err := b.take(q, End(end)); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginPops begins to read as many items as there are pops. What is due is read with
// them if it will probably be needed.
func (q *queueOps) beginPops(b *batch) {
	if len(q.pops[Front])+len(q.pops[Back]) == 0 {
		return
	}
	q.beginItems(b)
	if q.l.cameShort.Load() {
		q.due.begin()
	}
}

func (q *queueOps) beginItems(b *batch) {
	q.items = q.l.walkEnds(b.tx, [2]int{len(q.pops[Front]), len(q.pops[Back])})
}

// tooFew reports whether there are not enough items for the pops from that end.
func (q *queueOps) tooFew(end End) bool {
	return len(q.items.walks[end].items) < len(q.pops[end])
}

// notePops reports whether there are not enough items for the pops, and notes it for
// the next ones.
func (q *queueOps) notePops() (short bool) {
	if len(q.pops[Front])+len(q.pops[Back]) == 0 {
		return false
	}
	short = q.tooFew(Front) || q.tooFew(Back)
	if q.l.cameShort.Load() != short {
		q.l.cameShort.Store(short)
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
		dues[i] = &q.due
	}
	if err := bringBack(dues); err != nil {
		return err
	}
	for _, q := range short {
		if q.due.returned {
			q.beginItems(b)
		}
	}
	for _, q := range short {
		if err := q.items.arrive(); err != nil {
			return err
		}
	}
	return nil
}

// take gives the items of one end to its pops, one each.
func (b *batch) take(q *queueOps, end End) error {
	places := q.pops[end]
	if q.due.err != nil && q.tooFew(end) {
		return failed(b.results, places, q.due.err)
	}
	for n, i := range places {
		s, err := q.items.next(end)
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
		q.items.take(end, s)
		q.ledger.take(s)
		b.popped = append(b.popped, inQueue{q.l, s})
		b.results[i].Item = s.item
	}
	return nil
}
