package fdbpq

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginPush starts the reads for the pushes of a queue, through a snapshot: pushes must
// not conflict with pushes.
func (t *txOps) beginPush(q *queueOps, snapshot kv.Reader) {
	if len(q.pushes) == 0 {
		return
	}
	q.dedup = t.beginDedup(q, snapshot)
	if q.l.list != nil && !q.l.recentlyListed(t.now) {
		q.listEntry = snapshot.Get(q.l.listKey())
	}
	q.last = make(map[int64]lastItems)
	for _, i := range q.pushes {
		p := q.priorityOf(&t.ops[i])
		if _, ok := q.last[p]; !ok {
			q.last[p] = q.l.readLast(snapshot, p)
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
	if err := t.loadDedup(q); err != nil {
		return err
	}
	t.failPushes(q, corrupt)
	if err := q.dedup.removeOver(&q.ledger); err != nil {
		return err
	}
	t.nextCounts[q.l.prefix] = next
	unique := uniqueBytes(len(q.pushes))
	if q.peeks != nil { // only they ask
		q.pushed = make(map[ID]struct{}, len(q.pushes))
	}
	for n, i := range q.pushes {
		op := &t.ops[i]
		p := q.priorityOf(op)
		if t.results[i].Err != nil {
			continue
		}
		if first := q.dedup.first(&op.Message); first != nil {
			t.results[i].Item = Item{ID: *first, PushedAt: first.pushedAt()}
			t.results[i].Duplicate = true
			continue
		}
		id := newID(p, next[p], t.now, unique[n*uniqueSize:][:uniqueSize], q.l.needsMeta(&op.Message))
		next[p] = following(next[p])
		q.ledger.add(&id, &op.Message)
		q.dedup.pushed(&q.ledger, &id, &op.Message)
		if q.pushed != nil {
			q.pushed[id] = struct{}{}
		}
		t.results[i].Item = Item{ID: id, PushedAt: id.pushedAt()}
	}
	return nil
}

// failPushes fails the pushes at priorities with corrupt items, groups that are too large,
// and all of a group of which one fails. A group is pushes that follow each other.
func (t *txOps) failPushes(q *queueOps, corrupt map[int64]error) {
	for rest := q.pushes; len(rest) > 0; {
		size := 1
		for size < len(rest) && t.ops[rest[size]].Follows && rest[size] == rest[size-1]+1 {
			size++
		}
		var failed error
		for n, i := range rest[:size] {
			err := cmp.Or(t.results[i].Err, corrupt[q.priorityOf(&t.ops[i])])
			if err != nil && size > 1 {
				err = fmt.Errorf("item %d: %w", n, err)
			}
			failed = cmp.Or(failed, err)
		}
		if failed == nil && size > 1 {
			failed = t.checkGroup(q.l, rest[:size])
		}
		if failed != nil {
			for _, i := range rest[:size] {
				t.results[i].Err = failed
			}
		}
		rest = rest[size:]
	}
}

// checkGroup returns an error if pushes cannot be done in one transaction.
func (t *txOps) checkGroup(l *layout, group []int) error {
	size := 0
	for _, i := range group {
		size += l.pushSize(&t.ops[i].Message)
	}
	if size > maxGroup {
		return fmt.Errorf("%w: %d items take %d bytes in a transaction: want at most %d: push them in several",
			ErrMessageTooLarge, len(group), size, maxGroup)
	}
	return nil
}

// maxGroup leaves room in a transaction for the receipt and the list of queues.
const maxGroup = kv.MaxTransactionSize - 100_000

// pushSize is at least the number of bytes that a push takes in a transaction, if its
// priority is its alone.
func (l *layout) pushSize(m *Message) int {
	// Each key is written, with a conflict range of two keys: that of the item, those of its
	// parts, and a counter.
	const rest = 3 * (kindSize + 64)
	keys := 2
	if l.needsMeta(m) {
		keys += 1 + m.size()/chunkSize
	}
	size := m.size() + l.dedupSize(m) + keys*(3*len(l.prefix)+rest)
	if l.format == TupleValues { // zero bytes take two
		size += bytes.Count(m.Value[:min(len(m.Value), l.format.chunk())], []byte{0})
	}
	return size
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

// readLast starts to read the last items of a priority.
func (l *layout) readLast(snapshot kv.Reader, priority int64) lastItems {
	last := kv.RangeOptions{Limit: 1, Reverse: true}
	return lastItems{snapshot.GetRange(l.priorityRange(priority), last), snapshot.GetRange(l.heldRange(priority), last)}
}

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
