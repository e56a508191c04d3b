package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// peek serves the peeks, after the pushes and pops.
func (b *batch) peek() error {
	for _, q := range b.queues {
		q.beginPeeks(b.peekReader(q))
	}
	for _, q := range b.queues {
		if err := q.findPeeks(); err != nil {
			return err
		}
	}
	for _, q := range b.queues {
		b.guardPeeks(q)
		if err := q.finishPeeks(b.results); err != nil {
			return err
		}
	}
	return nil
}

// peekReader is without conflict unless the result follows from what this batch
// removes: such a peek takes place when the batch commits, so nothing may have
// come before its item until then.
func (b *batch) peekReader(q *queueOps) kv.Reader {
	if len(q.pops[Front])+len(q.pops[Back]) > 0 {
		return b.tx
	}
	return b.tx.Snapshot()
}

// guardPeeks does the same for peeks that found what this batch pushes.
func (b *batch) guardPeeks(q *queueOps) {
	for end, s := range q.peeked {
		if s == nil {
			continue
		}
		if _, own := q.pushed[s.item.ID]; own {
			b.tx.AddReadConflict(q.l.before(s.pair.Key, End(end)))
		}
	}
}

// before is the range of the keys that would be served from that end before key,
// and key.
func (l *layout) before(key []byte, end End) kv.Range {
	r := l.itemRange()
	if end == Back {
		r.Begin = key
	} else {
		r.End = kv.SingleKey(key).End
	}
	return r
}

// beginPeeks begins to look at the ends that are peeked at, once each: all peeks at
// an end get the same result.
func (q *queueOps) beginPeeks(r kv.Reader) {
	for end, places := range q.peeks {
		if len(places) > 0 {
			q.looks[end] = q.l.walk(r, End(end), 1)
		}
	}
}

// findPeeks waits for what beginPeeks began, and begins to read the rest of the
// items.
func (q *queueOps) findPeeks() (err error) {
	for end := range q.looks {
		look := &q.looks[end]
		if q.peeked[end], err = look.next(); err != nil {
			return err
		}
		if s := q.peeked[end]; s != nil {
			s.readParts(look.r, q.l)
		}
	}
	return nil
}

// finishPeeks waits for the items and gives them to the peeks.
func (q *queueOps) finishPeeks(results []Result) error {
	for end, places := range q.peeks {
		result := Result{Err: ErrEmpty}
		if s := q.peeked[end]; s != nil {
			if err := s.wait(); err != nil {
				return err
			}
			if result = (Result{Item: s.item}); s.err != nil {
				result = Result{Err: s.err}
			}
		}
		for _, i := range places {
			results[i] = result
		}
	}
	return nil
}
