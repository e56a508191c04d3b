package fdbpq

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginPush starts the reads for the pushes of a queue, through a snapshot: pushes must
// not conflict with pushes.
func (t *txOps) beginPush(q *queueOps, snapshot kv.Reader) {
	if len(q.pushes) == 0 {
		return
	}
	t.refuseGroups(q)
	q.dedup = t.beginDedup(q, snapshot)
	if q.l.list != nil && !q.l.recentlyListed(t.now) {
		q.listEntry = snapshot.Get(q.l.listKey())
	}
	q.last, q.next = make(map[int64]lastItems), make(map[int64]int64)
	var known map[int64]int64
	if t.known.any() {
		known = t.known.counts.counts[q.l.prefix]
	}
	for _, i := range q.pushes {
		p := q.priorityOf(&t.ops[i])
		if count, ok := known[p]; ok {
			q.next[p] = count
		} else if _, ok := q.last[p]; !ok {
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
	settings, err := q.ledger.limits()
	if err != nil {
		return err
	}
	corrupt, err := t.countsOfPushes(q)
	if err != nil {
		return err
	}
	if err := t.loadDedup(q); err != nil {
		return err
	}
	t.failPushes(q, corrupt, settings)
	if err := t.countLoad(q); err != nil {
		if err := failOps(t.results, q.pushes, err); err != nil {
			return err
		}
	}
	if err := q.dedup.removeOver(&q.ledger); err != nil {
		return err
	}
	t.nextCounts[q.l.prefix] = q.next
	unique := uniqueBytes(len(q.pushes))
	if q.peeks != nil { // only they ask
		q.pushed = make(map[ID]struct{}, len(q.pushes))
	}
	for group := range t.pushGroups(q) {
		if t.results[group[0]].Err != nil {
			continue // and so the others
		}
		if admitted, err := t.admit(q, group); err != nil {
			return err
		} else if !admitted {
			continue
		}
		for _, i := range group {
			t.pushOne(q, i, settings, unique[:uniqueSize])
			unique = unique[uniqueSize:]
		}
	}
	return nil
}

// countsOfPushes completes q.next, and returns an error for each priority whose items are corrupt: pushes at
// other priorities go on.
func (t *txOps) countsOfPushes(q *queueOps) (corrupt map[int64]error, err error) {
	for p, last := range q.last {
		count, err := q.l.nextCount(last)
		switch {
		case errors.Is(err, ErrCorrupt):
			if corrupt == nil {
				corrupt = map[int64]error{}
			}
			corrupt[p] = err
			continue
		case err != nil:
			return nil, err
		}
		if minCount, ok := t.minCounts[q.l.prefix][p]; ok {
			count = max(count, minCount)
		}
		q.next[p] = count
	}
	return corrupt, nil
}

// pushOne runs a push that nothing stands against.
func (t *txOps) pushOne(q *queueOps, i int, settings *Settings, unique []byte) {
	op, result := &t.ops[i], &t.results[i]
	if first := q.dedup.first(&op.Message); first != nil {
		result.Item = Item{ID: *first, PushedAt: first.pushedAt()}
		result.Duplicate = true
		return
	}
	m, p := op.Message, q.priorityOf(op)
	m.Expires = op.expires(t.now, settings)
	count := q.next[p]
	q.next[p] = following(count)
	id := newID(p, count, t.now, unique, q.l.needsMeta(&m))
	result.Item = Item{ID: id, PushedAt: id.pushedAt()}
	q.dedup.pushed(&q.ledger, &id, &m)
	if until := op.heldUntil(t.now); !until.IsZero() {
		q.ledger.addDelayed(&id, &m, until)
		if q.limits.discards() {
			q.notePushedVictim(id, m, until)
		}
		result.NextDue = until
		return
	}
	q.ledger.add(&id, &m)
	if q.limits.discards() {
		q.notePushedVictim(id, m, time.Time{})
	}
	if q.pushed != nil {
		q.pushed[id] = struct{}{}
	}
}

// failPushes fails the pushes at priorities with corrupt items, groups that are too large,
// and all of a group of which one fails. A group is pushes that follow each other.
func (t *txOps) failPushes(q *queueOps, corrupt map[int64]error, settings *Settings) {
	for group := range t.pushGroups(q) {
		if q.refused[group[0]] {
			continue
		}
		var failed error
		for n, i := range group {
			err := cmp.Or(t.results[i].Err, corrupt[q.priorityOf(&t.ops[i])])
			if err != nil && len(group) > 1 {
				err = fmt.Errorf("item %d: %w", n, err)
			}
			failed = cmp.Or(failed, err)
		}
		if failed == nil && len(group) > 1 {
			failed = t.checkGroup(q.l, group, settings)
		}
		if failed != nil {
			for _, i := range group {
				t.results[i].Err = failed
			}
		}
	}
}

// refuseGroups fails groups that are too large whatever the settings are, before anything is read for
// them: FoundationDB's client takes more memory for thousands of reads than for the items.
func (t *txOps) refuseGroups(q *queueOps) {
	for group := range t.pushGroups(q) {
		if len(group) == 1 {
			continue
		}
		err := t.checkGroup(q.l, group, &Settings{})
		if err == nil {
			continue
		}
		if q.refused == nil {
			q.refused = map[int]bool{}
		}
		q.refused[group[0]] = true
		for _, i := range group {
			t.results[i].Err = err
		}
	}
}

// checkGroup returns an error if pushes cannot be done in one transaction.
func (t *txOps) checkGroup(l *layout, group []int, settings *Settings) error {
	size := 0
	for _, i := range group {
		op := &t.ops[i]
		m := op.Message
		m.Expires = op.expires(t.now, settings)
		size += l.pushSize(&m, op.delays())
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
func (l *layout) pushSize(m *Message, delays bool) int {
	// Each key is written, with a conflict range of two keys: that of the item, those of its
	// parts, and a counter. 64 bytes are for the rest of a key and for what FoundationDB counts
	// besides keys; a Database that decorates another may have a prefix of 32 bytes.
	const rest = 3 * (kindSize + 64 + 32)
	keys := 2
	if l.needsMeta(m) {
		keys += 1 + m.Size()/chunkSize
	}
	if delays || !m.Expires.IsZero() { // the entry of the time index contains the key of the item
		keys++
	}
	size := m.Size() + l.dedupSize(m) + keys*(3*len(l.prefix)+rest)
	if delays {
		size += maxRecord
	}
	if m.Unique != "" && (delays || !m.Expires.IsZero()) { // they contain it
		size += textSize(m.Unique)
	}
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
