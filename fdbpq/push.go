package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginPush starts the reads for the pushes of a queue, through a snapshot: pushes must
// not conflict with pushes.
func (t *txOps) beginPush(q *queueOps, snapshot kv.Reader) {
	if len(q.pushes) == 0 {
		return
	}
	if q.l.list != nil && !q.l.recentlyListed(t.now) {
		q.listEntry = snapshot.Get(q.l.listKey())
	}
	q.last = make(map[int64]lastItems)
	for _, i := range q.pushes {
		p := q.priorityOf(&t.ops[i])
		if _, ok := q.last[p]; !ok {
			last := kv.RangeOptions{Limit: 1, Reverse: true}
			q.last[p] = lastItems{snapshot.GetRange(q.l.priorityRange(p), last), snapshot.GetRange(q.l.heldRange(p), last)}
		}
	}
}

// priorityOf returns the priority that op has in this queue: always 0 in a FIFO queue.
func (q *queueOps) priorityOf(op *Op) int64 {
	if q.l.fifo {
		return 0
	}
	return op.Priority
}

// push runs the pushes of a queue.
func (t *txOps) push(q *queueOps) error {
	if len(q.pushes) == 0 {
		return nil
	}
	if q.listEntry != nil {
		if err := t.ensureListed(q.l, q.listEntry); err != nil {
			return err
		}
	}
	next := make(map[int64]int64, len(q.last))
	corrupt := make(map[int64]error) // by priority: pushes at other priorities go on
	for p, last := range q.last {
		count, err := q.l.nextCount(last)
		switch {
		case errors.Is(err, ErrCorrupt):
			corrupt[p] = err
		case err != nil:
			return err
		}
		if minCount, ok := t.minCounts[q.l.prefix][p]; ok {
			count = max(count, minCount)
		}
		next[p] = count
	}
	t.nextCounts[q.l.prefix] = next
	unique := uniqueBytes(len(q.pushes))
	q.pushed = make(map[ID]struct{}, len(q.pushes))
	for n, i := range q.pushes {
		op := &t.ops[i]
		p := q.priorityOf(op)
		if err := corrupt[p]; err != nil {
			t.results[i].Err = err
			continue
		}
		id := newID(p, next[p], t.now, unique[n*uniqueSize:][:uniqueSize], q.l.needsMeta(&op.Message))
		next[p] = following(next[p])
		q.ledger.add(&id, &op.Message)
		q.pushed[id] = struct{}{}
		t.results[i].Item = Item{ID: id, PushedAt: id.pushedAt()}
	}
	return nil
}

// ensureListed adds the queue to the list of queues if it is missing, and removes the
// mark of whoever wants to take it off.
func (t *txOps) ensureListed(l *layout, entry kv.Future[[]byte]) error {
	value, err := entry.Get()
	if err != nil {
		return err
	}
	listed := false
	if value != nil {
		mark, err := parseListEntry(value)
		listed = err == nil && mark == "" // an unreadable entry is written again
	}
	if !listed {
		l.addToList(t.tx, t.now)
		t.wrote = true
	}
	t.listed = append(t.listed, l)
	return nil
}

// lastItems is the last item of a priority that is ready, and the last that is held, being
// read. A held item returns to its old place, so nothing new may be pushed before it.
type lastItems struct{ ready, held kv.Future[[]kv.KeyValue] }

// nextCount returns the count after those of the last items.
func (l *layout) nextCount(last lastItems) (int64, error) {
	count, empty := l.firstCount(), true
	for _, future := range []kv.Future[[]kv.KeyValue]{last.ready, last.held} {
		pairs, err := future.Get()
		if err != nil {
			return 0, err
		}
		if len(pairs) == 0 {
			continue
		}
		id, err := l.parseItem(pairs[0].Key)
		if err != nil {
			return 0, err
		}
		if next := following(id.Count); empty || next > count {
			count, empty = next, false
		}
	}
	return count, nil
}

// following returns count + 1. At the end of int64, which only another program can
// reach, it stays there, and the time in the id orders the items.
func following(count int64) int64 { return max(count, count+1) }
