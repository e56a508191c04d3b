package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// peeks is the peeks at one queue. All at the same end get the same result.
type peeks struct {
	places [2][]int // in batch.ops, by End
	looks  [2]cursor
	found  [2]*stored // nil if there is no item, or nobody looks there
}

// peek serves the peeks, after the pushes and pops.
func (b *batch) peek() error {
	queues := make([]*queueOps, 0, len(b.queues)) // that have peeks
	for _, q := range b.queues {
		if q.peeks != nil {
			q.peeks.begin(b.peekReader(q), q.l)
			queues = append(queues, q)
		}
	}
	for _, q := range queues {
		if err := q.peeks.find(); err != nil {
			return err
		}
	}
	for _, q := range queues {
		b.guardPeeks(q)
		if err := q.peeks.finish(b.results); err != nil {
			return err
		}
	}
	return nil
}

// peekReader is without conflict unless the result follows from what this batch
// removes: such a peek takes place when the batch commits, so nothing may have
// come before its item until then.
func (b *batch) peekReader(q *queueOps) kv.Reader {
	if q.pops != nil {
		return b.tx
	}
	return b.tx.Snapshot()
}

// guardPeeks does the same for peeks that found what this batch pushes.
func (b *batch) guardPeeks(q *queueOps) {
	for end, s := range q.peeks.found {
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

// begin begins to look at the ends that are peeked at.
func (p *peeks) begin(r kv.Reader, l *layout) {
	for end, places := range p.places {
		if len(places) > 0 {
			p.looks[end] = l.walk(r, End(end), 1)
		}
	}
}

// find waits for what begin began, and begins to read the rest of the items.
func (p *peeks) find() error {
	for end := range p.looks {
		look := &p.looks[end]
		s, err := look.next()
		if err != nil {
			return err
		}
		if s != nil {
			s.readParts(look.r, look.l)
		}
		p.found[end] = s
	}
	return nil
}

// finish waits for the items and gives them to the peeks.
func (p *peeks) finish(results []Result) error {
	for end, places := range p.places {
		result := Result{Err: ErrEmpty}
		if s := p.found[end]; s != nil {
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
