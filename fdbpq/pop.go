package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// pop serves the pops of both ends. Both ends are read before anything is
// removed: if they overlap, the front takes first.
func (b *batch) pop() error {
	for _, q := range b.queues {
		for end, want := range [2]int{len(q.popMins), len(q.popMaxs)} {
			if want > 0 {
				q.popReads[end] = b.readEnd(q, end, want)
			}
		}
	}
	for _, q := range b.queues {
		var taken map[string]struct{} // by the front, if both ends are served
		if len(q.popMins) > 0 && len(q.popMaxs) > 0 {
			taken = make(map[string]struct{}, len(q.popMins))
		}
		for end, places := range [2][]int{q.popMins, q.popMaxs} {
			if len(places) == 0 {
				continue
			}
			pairs, err := b.popRead(q, end, len(places))
			if err != nil {
				if err := failed(b.results, places, err); err != nil {
					return err
				}
				continue
			}
			if err := b.popFrom(q, pairs, places, taken); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *batch) readEnd(q *queueOps, end, want int) kv.Future[[]kv.KeyValue] {
	return b.tx.GetRange(q.l.itemRange(), kv.RangeOptions{Limit: want, Reverse: end == 1})
}

// popRead waits for what was read for the pops of one end. A queue that has
// too few items may have some with staged pops whose owners are gone.
func (b *batch) popRead(q *queueOps, end, want int) ([]kv.KeyValue, error) {
	pairs, err := q.popReads[end].Get()
	if err != nil || len(pairs) == want {
		return pairs, err
	}
	returned, err := returnExpired(b.tx, q.l, b.now)
	q.returned = q.returned || returned
	if err != nil || !q.returned {
		return pairs, err
	}
	b.wrote = true
	return b.readEnd(q, end, want).Get()
}

// popFrom gives the items of pairs that are not taken yet to the pops at the
// given places, one each.
func (b *batch) popFrom(q *queueOps, pairs []kv.KeyValue, places []int, taken map[string]struct{}) error {
	items := make([]found, 0, len(pairs))
	for _, pair := range pairs {
		if _, gone := taken[string(pair.Key)]; !gone {
			items = append(items, q.l.find(b.tx, pair))
		}
	}
	for n, i := range places {
		if n >= len(items) {
			b.results[i].Err = ErrEmpty
			continue
		}
		f := &items[n]
		if err := f.wait(); err != nil {
			return err
		}
		if f.err != nil {
			// The item stays, and so do those behind it: an order with holes
			// would be no order.
			return failed(b.results, places[n:], f.err)
		}
		b.remove(q, f)
		if taken != nil {
			taken[string(f.pair.Key)] = struct{}{}
		}
		b.results[i].Item = f.item
	}
	return nil
}

func (b *batch) remove(q *queueOps, f *found) {
	b.tx.Clear(f.pair.Key)
	f.clearParts(b.tx)
	b.popped = append(b.popped, inQueue{q.l, f})
	q.changed(&f.item.ID, -1)
	b.wrote = true
}
