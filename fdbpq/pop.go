package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// pop serves the pops of both ends. Both ends are read before anything is
// removed: if they overlap, the front takes first.
func (b *batch) pop() error {
	for _, q := range b.queues {
		q.beginPops(b.tx)
	}
	var short []*queueOps
	for _, q := range b.queues {
		if err := q.waitPops(); err != nil {
			return err
		}
		if q.pops[frontEnd].tooFew() || q.pops[backEnd].tooFew() {
			short = append(short, q)
		}
	}
	if err := b.refill(short); err != nil {
		return err
	}
	for _, q := range b.queues {
		q.findPops(b.tx)
	}
	for _, q := range b.queues {
		if err := b.take(q); err != nil {
			return err
		}
	}
	return nil
}

func (q *queueOps) beginPops(r kv.Reader) {
	for end := range q.pops {
		if e := &q.pops[end]; len(e.places) > 0 {
			e.begin(r, q.l, end, len(e.places))
		}
	}
}

func (q *queueOps) waitPops() error {
	for end := range q.pops {
		if e := &q.pops[end]; len(e.places) > 0 {
			if err := e.wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// tooFew reports whether there are not enough items for the pops.
func (e *endOps) tooFew() bool { return len(e.pairs) < len(e.places) }

// refill looks for items in queues that have too few for their pops: some may be
// with staged pops whose owners are gone.
func (b *batch) refill(short []*queueOps) error {
	if len(short) == 0 {
		return nil
	}
	if err := sweep(b.tx, short, b.now); err != nil {
		return err
	}
	for _, q := range short {
		if q.returned {
			b.wrote = true
			q.beginPops(b.tx)
		}
	}
	for _, q := range short {
		if q.returned {
			if err := q.waitPops(); err != nil {
				return err
			}
		}
	}
	return nil
}

// findPops begins to read the rest of the items that were found, those that both
// ends found once.
func (q *queueOps) findPops(r kv.Reader) {
	var known map[string]found
	if len(q.pops[frontEnd].pairs) > 0 && len(q.pops[backEnd].pairs) > 0 {
		known = make(map[string]found)
	}
	for end := range q.pops {
		e := &q.pops[end]
		e.items = make([]found, len(e.pairs))
		for i, pair := range e.pairs {
			f, ok := known[string(pair.Key)]
			if !ok {
				f = q.l.find(r, pair)
			}
			if known != nil {
				known[string(pair.Key)] = f
			}
			e.items[i] = f
		}
	}
}

// take gives the items that were found to the pops of a queue.
func (b *batch) take(q *queueOps) error {
	var taken map[string]struct{} // by the front, if both ends are served
	if len(q.pops[frontEnd].places) > 0 && len(q.pops[backEnd].places) > 0 {
		taken = make(map[string]struct{}, len(q.pops[frontEnd].places))
	}
	for end := range q.pops {
		e := &q.pops[end]
		if e.tooFew() && q.unswept != nil {
			for _, i := range e.places {
				b.results[i].Err = q.unswept
			}
			continue
		}
		if err := b.takeFrom(q, e, taken); err != nil {
			return err
		}
	}
	return nil
}

// takeFrom gives the items of one end that are not taken yet to its pops, one
// each.
func (b *batch) takeFrom(q *queueOps, e *endOps, taken map[string]struct{}) error {
	items := e.items
	for n, i := range e.places {
		for len(items) > 0 && isTaken(taken, &items[0]) {
			items = items[1:]
		}
		if len(items) == 0 {
			b.results[i].Err = ErrEmpty
			continue
		}
		f := &items[0]
		items = items[1:]
		if err := f.wait(); err != nil {
			return err
		}
		if f.err != nil {
			// The item stays, and so do those behind it: an order with holes
			// would be no order.
			return failed(b.results, e.places[n:], f.err)
		}
		b.remove(q, f)
		if taken != nil {
			taken[string(f.pair.Key)] = struct{}{}
		}
		b.results[i].Item = f.item
	}
	return nil
}

func isTaken(taken map[string]struct{}, f *found) bool {
	_, is := taken[string(f.pair.Key)]
	return is
}

func (b *batch) remove(q *queueOps, f *found) {
	b.tx.Clear(f.pair.Key)
	f.clearParts(b.tx)
	b.popped = append(b.popped, inQueue{q.l, f})
	q.changed(&f.item.ID, -1)
	b.wrote = true
}
