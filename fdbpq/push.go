package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// beginPush begins to read what the queue's pushes need to know. The reader is
// one without conflict: pushes never conflict with pushes.
func (b *batch) beginPush(q *queueOps, snapshot kv.Reader) {
	if len(q.pushes) == 0 {
		return
	}
	_, pushedBefore := b.atLeast[q.l.name] // by a batch that lists it
	if q.l.registered != nil && !q.l.listed.Load() && !pushedBefore {
		q.registered = snapshot.Get(q.l.registered)
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
	if q.registered != nil {
		since, err := q.registered.Get()
		if err != nil {
			return err
		}
		if since == nil {
			b.tx.Set(q.l.registered, tuple.Tuple{b.now.UnixMicro()}.Pack())
			b.wrote = true
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
		if least, ok := b.atLeast[q.l.name][p]; ok {
			count = max(count, least)
		}
		next[p] = count
	}
	b.next[q.l.name] = next
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
		q.l.put(b.tx, &id, &op.Message)
		q.pushed[id] = struct{}{}
		q.changed(&id, 1)
		b.results[i].Item = Item{ID: id, PushedAt: id.pushedAt()}
		b.wrote = true
	}
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
