package fdbpq

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
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
	if q.l.List != nil && !q.l.RecentlyListed(t.now) {
		q.listEntry = snapshot.Get(q.l.ListKey())
	}
	q.last, q.next = make(map[int64]state.LastItems), make(map[int64]int64)
	var known map[int64]int64
	if t.known.Any() {
		known = t.known.Counts.Counts[q.l.Prefix]
	}
	for _, i := range q.pushes {
		p := q.priorityOf(&t.ops[i])
		if count, ok := known[p]; ok {
			q.next[p] = count
		} else if _, ok := q.last[p]; !ok {
			q.last[p] = state.ReadLast(q.l, snapshot, p)
		}
	}
}

// priorityOf returns the priority that op has in this queue: always 0 in a FIFO queue.
func (q *queueOps) priorityOf(op *Op) int64 {
	if q.l.Fifo {
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
	settings, err := q.ledger.Limits()
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
	if err := q.dedup.RemoveOver(&q.ledger); err != nil {
		return err
	}
	t.nextCounts[q.l.Prefix] = q.next
	unique := codec.UniqueBytes(len(q.pushes))
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
			t.pushOne(q, i, settings, unique[:codec.UniqueSize])
			unique = unique[codec.UniqueSize:]
		}
	}
	return nil
}

// countsOfPushes completes q.next, and returns an error for each priority whose items are corrupt: pushes at
// other priorities go on.
func (t *txOps) countsOfPushes(q *queueOps) (corrupt map[int64]error, err error) {
	for p, last := range q.last {
		count, err := state.NextCount(q.l, last)
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
		if minCount, ok := t.minCounts[q.l.Prefix][p]; ok {
			count = max(count, minCount)
		}
		q.next[p] = count
	}
	return corrupt, nil
}

// pushOne runs a push that nothing stands against.
func (t *txOps) pushOne(q *queueOps, i int, settings *Settings, unique []byte) {
	op, result := &t.ops[i], &t.results[i]
	if first := q.dedup.First(&op.Message); first != nil {
		result.Item = Item{ID: *first, PushedAt: codec.PushedAt(first)}
		result.Duplicate = true
		return
	}
	m, p := op.Message, q.priorityOf(op)
	m.Expires = op.expires(t.now, settings)
	count := q.next[p]
	q.next[p] = codec.Following(count)
	id := codec.NewID(p, count, t.now, unique, q.l.NeedsMeta(&m))
	result.Item = Item{ID: id, PushedAt: codec.PushedAt(&id)}
	q.dedup.Pushed(&q.ledger, &id, &m)
	if until := op.heldUntil(t.now); !until.IsZero() {
		q.ledger.AddDelayed(&id, &m, until)
		if q.limits.discards() {
			q.notePushedVictim(id, m, until)
		}
		result.NextDue = until
		return
	}
	q.ledger.Add(&id, &m)
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
func (t *txOps) checkGroup(l *codec.Layout, group []int, settings *Settings) error {
	size := 0
	for _, i := range group {
		op := &t.ops[i]
		m := op.Message
		m.Expires = op.expires(t.now, settings)
		size += l.PushSize(&m, op.delays())
	}
	if size > maxGroup {
		return fmt.Errorf("%w: %d items take %d bytes in a transaction: want at most %d: push them in several",
			ErrMessageTooLarge, len(group), size, maxGroup)
	}
	return nil
}

// maxGroup leaves room in a transaction for the receipt and the list of queues.
const maxGroup = kv.MaxTransactionSize - 100_000

// ensureListed adds the queue to the list of queues if it is missing, and removes the
// mark of whoever wants to take it off.
func (t *txOps) ensureListed(l *codec.Layout, entry kv.Future[[]byte]) error {
	value, err := entry.Get()
	if err != nil {
		return err
	}
	listed := false
	if value != nil {
		mark, err := codec.ParseListEntry(value)
		listed = err == nil && mark == "" // an unreadable entry is written again
	}
	if !listed {
		state.AddToList(l, t.tx, t.now)
		t.wrote = true
	}
	t.listed = append(t.listed, l)
	return nil
}
