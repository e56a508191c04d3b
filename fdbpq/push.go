package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginPush begins to read what the queue's pushes need to know. The reader is
// one without conflict: pushes never conflict with pushes.
func (b *batch) beginPush(q *queueOps, snapshot kv.Reader) {
	if len(q.pushes) == 0 {
		return
	}
	if q.l.list != nil && !q.l.knownListed(b.now) {
		q.entry = snapshot.Get(q.l.entry())
	}
	q.last = make(map[int64]kv.Future[[]kv.KeyValue])
	for _, i := range q.pushes {
		p := q.priority(&b.ops[i])
		if _, ok := q.last[p]; !ok {
			q.last[p] = snapshot.GetRange(q.l.priorityRange(p), kv.RangeOptions{Limit: 1, Reverse: true})
		}
	}
}

// priority is the priority an op of this queue has: none in a FIFO queue.
func (q *queueOps) priority(op *Op) int64 {
	if q.l.fifo {
		return 0
	}
	return op.Priority
}

// push serves the pushes of a queue.
func (b *batch) push(q *queueOps) error {
	if len(q.pushes) == 0 {
		return nil
	}
	if q.entry != nil {
		if err := b.list(q.l, q.entry); err != nil {
			return err
		}
	}
	next := make(map[int64]int64, len(q.last))
	corrupt := make(map[int64]error) // by priority: the others are served
	for p, future := range q.last {
		count, err := q.l.nextCount(future)
		switch {
		case errors.Is(err, ErrCorrupt):
			corrupt[p] = err
		case err != nil:
			return err
		}
		if least, ok := b.atLeast[q.l.prefix][p]; ok {
			count = max(count, least)
		}
		next[p] = count
	}
	b.next[q.l.prefix] = next
	unique := uniqueBytes(len(q.pushes))
	q.pushed = make(map[ID]struct{}, len(q.pushes))
	for n, i := range q.pushes {
		op := &b.ops[i]
		p := q.priority(op)
		if err := corrupt[p]; err != nil {
			b.results[i].Err = err
			continue
		}
		id := newID(p, next[p], b.now, unique[n*uniqueSize:][:uniqueSize], q.l.needsMeta(&op.Message))
		next[p] = following(next[p])
		q.ledger.add(&id, &op.Message)
		q.pushed[id] = struct{}{}
		b.results[i].Item = Item{ID: id, PushedAt: id.pushedAt()}
	}
	return nil
}

// list sees to it that the queue is in the list of queues, and nobody's to take
// off it.
func (b *batch) list(l *layout, entry kv.Future[[]byte]) error {
	value, err := entry.Get()
	if err != nil {
		return err
	}
	listed := false
	if value != nil {
		mark, err := parseEntry(value)
		listed = err == nil && mark == "" // what cannot be read is written again
	}
	if !listed {
		l.register(b.tx, b.now)
		b.wrote = true
	}
	b.listed = append(b.listed, l)
	return nil
}

// nextCount returns the count after that of the last item found.
func (l *layout) nextCount(last kv.Future[[]kv.KeyValue]) (int64, error) {
	pairs, err := last.Get()
	if err != nil {
		return 0, err
	}
	if len(pairs) == 0 {
		return l.firstCount(), nil
	}
	id, err := l.parseItem(pairs[0].Key)
	if err != nil {
		return 0, err
	}
	return following(id.Count), nil
}

// following is count + 1; at the end of int64, which only another program can
// have reached, it stays there and the time in the id orders the items.
func following(count int64) int64 { return max(count, count+1) }
