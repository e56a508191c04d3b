package fdbpq

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pushes is the pushes. Their reads do not conflict, because pushes must not conflict with pushes,
// unless there is a limit, a message id or a unique key.
type pushes struct {
	queues []*queuePushes

	minCounts  state.CountsByQueue // the lowest counts that pushed items may get; nil is none
	nextCounts state.CountsByQueue // the counts after those of the pushed items
	listed     []*codec.Layout     // queues that are in the list of queues, or are now added to it
	limited    bool                // one of the queues has a limit
}

// queuePushes is those of one queue.
type queuePushes struct {
	*queueTxn
	all     *pushes
	indexes []int // into txn.ops

	listEntry kv.Future[[]byte]          // nil if known to be there
	last      map[int64]kv.Future[int64] // by priority; what is not in next
	next      map[int64]int64            // the next counts, by priority
	turns     state.Turns                // of groups
	dedup     *state.Dedup               // nil without message ids and unique keys
	limits    pushLimits
}

// beginReads starts the reads that need no settings. Pushes with unique keys depend on which items
// are in the queue.
func (p *pushes) beginReads() {
	for _, q := range p.queues {
		q.beginReads()
		q.looked = q.looked || q.unique()
	}
}

// rereadUniques starts to read again the unique keys of queues where that may have changed.
func (p *pushes) rereadUniques() {
	for _, q := range p.queues {
		if q.ledger.Wrote() && q.unique() {
			q.dedup.RereadUniques(q.tx, q.l)
		}
	}
}

// beginLimits starts to read how much there is in queues with a limit.
func (p *pushes) beginLimits() error {
	for _, q := range p.queues {
		settings, err := q.ledger.ReadableSettings()
		if err != nil {
			return err
		}
		if settings.MaxItems == 0 && settings.MaxBytes == 0 {
			continue
		}

		p.limited = true
		if err := q.limits.beginLoad(settings); err != nil {
			return err
		}
	}
	return nil
}

// run waits for the reads and adds the items, queue by queue.
func (p *pushes) run() error { return each(p.queues, (*queuePushes).run) }

// unique reports whether a push has a unique key.
func (q *queuePushes) unique() bool { return q.dedup != nil && len(q.dedup.Uniques) > 0 }

// beginReads starts to read the entry in the list of queues, the last items of priorities, and what
// message ids and unique keys stand for.
func (q *queuePushes) beginReads() {
	q.refuseGroups()
	q.beginDedup()
	if q.l.List != nil && !q.l.RecentlyListed(q.now) {
		q.listEntry = q.snapshot.Get(q.l.ListKey())
	}

	q.last, q.next = make(map[int64]kv.Future[int64]), make(map[int64]int64)
	known := q.known.Counts(q.l)
	for _, i := range q.indexes {
		p := q.priorityOf(&q.ops[i])
		if count, ok := known[p]; ok {
			q.next[p] = count
		} else if _, ok := q.last[p]; !ok {
			q.last[p] = state.ReadNextCount(q.l, q.snapshot, p)
		}
		if group := q.ops[i].Message.Group(); group != "" {
			q.turns.Want(&q.ledger, codec.HashGroup(group), p, q.ops[i].weight())
		}
	}
	q.turns.BeginReads()
}

// priorityOf returns the priority that op has in this queue: always 0 in a FIFO queue.
func (q *queuePushes) priorityOf(op *Op) int64 {
	if q.l.Fifo {
		return 0
	}
	return op.Priority
}

// run waits for the reads, fails the pushes that something stands against, and adds the others.
func (q *queuePushes) run() error {
	if err := q.ensureListed(); err != nil {
		return err
	}
	settings, err := q.ledger.ReadableSettings()
	if err != nil {
		return err
	}
	corrupt, err := q.findCounts()
	if err != nil {
		return err
	}
	if err := q.loadDedup(); err != nil {
		return err
	}

	q.failGroups(corrupt, settings)
	if err := q.limits.countLoad(q.indexes); err != nil {
		if err := q.failOps(err, q.indexes...); err != nil {
			return err
		}
	}
	if err := q.dedup.RemoveOver(&q.ledger); err != nil {
		return err
	}
	q.all.nextCounts[q.l.Prefix] = q.next
	return q.addItems(settings)
}

// addItems adds the items of the groups that nothing stands against, as far as there is room.
func (q *queuePushes) addItems(settings *Settings) error {
	random := codec.UniqueBytes(len(q.indexes)) // for all ids at once
	for group := range groups(q.ops, q.indexes) {
		if q.results[group[0]].Err != nil {
			continue // and so the others
		}
		if admitted, err := q.admit(group); err != nil {
			return err
		} else if !admitted {
			continue
		}

		for _, i := range group {
			q.addItem(i, settings, random[:codec.UniqueSize])
			random = random[codec.UniqueSize:]
		}
	}
	return nil
}

// admit reports whether the queue has room for a group of pushes, or gets it, and fails them
// otherwise. Duplicates take none. The error is one of the store.
func (q *queuePushes) admit(group []int) (bool, error) {
	if q.limits.settings == nil {
		return true, nil
	}
	added := q.dedup.OnlyNew(group, func(i int) *Message { return &q.ops[i].Message })
	if len(added) == 0 {
		return true, nil
	}

	refused, err := q.limits.makeRoom(added)
	if errors.Is(err, ErrCorrupt) {
		refused, err = err, nil
	}
	if refused != nil {
		q.failAll(group, refused)
	}
	return refused == nil, err
}

// findCounts completes q.next, and returns an error for each priority whose items are corrupt:
// pushes at other priorities go on.
func (q *queuePushes) findCounts() (corrupt map[int64]error, err error) {
	corrupt = map[int64]error{}
	for p, last := range q.last {
		count, err := last.Get()
		switch {
		case errors.Is(err, ErrCorrupt):
			corrupt[p] = err
			continue
		case err != nil:
			return nil, err
		}

		if minCount, ok := q.all.minCounts[q.l.Prefix][p]; ok {
			count = max(count, minCount)
		}
		q.next[p] = count
	}

	return corrupt, q.turns.Load(q.next, corrupt)
}

// addItem runs a push that nothing stands against, unless it is a duplicate.
func (q *queuePushes) addItem(i int, settings *Settings, random []byte) {
	op, result := &q.ops[i], &q.results[i]
	if first := q.dedup.First(&op.Message); first != nil {
		result.Item = Item{ID: *first, PushedAt: codec.PushedAt(first)}
		result.Duplicate = true
		return
	}

	m, p := q.messageOf(i, settings), q.priorityOf(op)
	group, count, at := codec.GroupOf(&m, settings), q.next[p], q.now
	if group > codec.NoGroup {
		count, at = q.turns.Next(group, p, op.weight(), count, q.now)
	}
	q.next[p] = max(q.next[p], codec.Following(count))
	id := codec.NewID(p, count, at, random, q.l.NeedsMeta(&m))
	codec.SetGroup(&id, group)
	result.Item = Item{ID: id, PushedAt: codec.PushedAt(&id)}
	q.dedup.Pushed(&q.ledger, &id, &m)

	until := op.heldUntil(q.now)
	if until.IsZero() {
		q.ledger.Add(&id, &m)
		q.notePushed(&id)
	} else {
		q.ledger.AddDelayed(&id, &m, until)
		result.NextDue = until
	}
	if q.limits.evicts() {
		q.limits.victims.notePushed(id, m, until)
	}
}

// failGroups fails the pushes at priorities with corrupt items, groups that are too large, and all
// of a group of which one fails. A group is pushes that follow each other.
func (q *queuePushes) failGroups(corrupt map[int64]error, settings *Settings) {
	for group := range groups(q.ops, q.indexes) {
		var failed error
		for n, i := range group {
			err := cmp.Or(q.results[i].Err, corrupt[q.priorityOf(&q.ops[i])])
			if err != nil && len(group) > 1 {
				err = fmt.Errorf("item %d: %w", n, err)
			}
			failed = cmp.Or(failed, err)
		}
		if failed == nil {
			failed = q.checkGroup(group, settings)
		}
		if failed != nil {
			q.failAll(group, failed)
		}
	}
}

// refuseGroups fails groups that are too large whatever the settings are, before anything is read
// for them: FoundationDB's client takes more memory for thousands of reads than for the items.
func (q *queuePushes) refuseGroups() {
	kept := q.indexes[:0]
	for group := range groups(q.ops, q.indexes) {
		if err := q.checkGroup(group, &Settings{}); err != nil {
			q.failAll(group, err)
		} else {
			kept = append(kept, group...)
		}
	}
	q.indexes = kept
}

// checkGroup returns an error if several pushes cannot be done in one transaction.
func (q *queuePushes) checkGroup(group []int, settings *Settings) error {
	if len(group) == 1 {
		return nil
	}
	size := 0
	for _, i := range group {
		m := q.messageOf(i, settings)
		size += q.l.PushSize(&m, q.ops[i].delays())
	}
	if size > maxGroup {
		return fmt.Errorf("%w: %d items take %d bytes in a transaction: want at most %d: push them in several",
			ErrMessageTooLarge, len(group), size, maxGroup)
	}
	return nil
}

// maxGroup leaves room in a transaction for the receipt and the list of queues.
const maxGroup = kv.MaxTransactionSize - 100_000

// ensureListed adds the queue to the list of queues if it is missing, and removes the mark of
// whoever wants to take it off.
func (q *queuePushes) ensureListed() error {
	if q.listEntry == nil {
		return nil
	}
	value, err := q.listEntry.Get()
	if err != nil {
		return err
	}

	listed := false
	if value != nil {
		mark, err := codec.ParseListEntry(value)
		listed = err == nil && mark == "" // an unreadable entry is written again
	}
	if !listed {
		q.ledger.AddToList()
	}
	q.all.listed = append(q.all.listed, q.l)
	return nil
}

// beginDedup starts to read what is known of the message ids and unique keys of the pushes, with
// conflict. q.dedup stays nil if there are none.
func (q *queuePushes) beginDedup() {
	var d *state.Dedup
	for _, i := range q.indexes {
		m := &q.ops[i].Message
		if m.MsgID == "" && m.Unique == "" || q.results[i].Err != nil {
			continue
		}

		if d == nil {
			d = &state.Dedup{MsgIDs: map[string]*state.DedupRead{}, Uniques: map[string]*state.DedupRead{}}
		}
		if m.MsgID != "" && d.MsgIDs[m.MsgID] == nil {
			d.MsgIDs[m.MsgID] = &state.DedupRead{Value: q.tx.Get(q.l.MsgIDKey(m.MsgID))}
		}
		if m.Unique != "" && d.Uniques[m.Unique] == nil {
			d.Uniques[m.Unique] = &state.DedupRead{Value: q.tx.Get(q.l.UniqueKey(m.Unique))}
		}
	}

	if d != nil && len(d.MsgIDs) > 0 {
		d.Over = q.snapshot.GetRange(q.l.OverRange(q.now), kv.RangeOptions{Limit: codec.OverPage * len(d.MsgIDs)})
	}
	q.dedup = d
}

// loadDedup waits for what beginDedup started, and fails the pushes whose keys cannot be read. The
// error is one of the store.
func (q *queuePushes) loadDedup() error {
	d := q.dedup
	if d == nil {
		return nil
	}

	// Without the settings, nobody knows how long message ids count.
	var unreadable error
	if d.Over != nil {
		settings, err := q.ledger.Settings()
		if codec.UnlessCorrupt(err) != nil {
			return err
		}
		if unreadable = err; err == nil {
			d.Window = settings.Window()
		}
	}

	for _, read := range d.MsgIDs {
		if err := read.Parse(codec.ParseSeen); err != nil {
			return err
		}
		read.Found = read.Found && read.Seen.Until.After(q.now)
	}
	if err := d.LoadUniques(q.snapshot, q.l); err != nil {
		return err
	}
	if q.due.Behind() { // the items that have a key may have expired
		if err := d.FreeExpired(&q.ledger); err != nil {
			return err
		}
	}

	for _, i := range q.indexes {
		m, result := &q.ops[i].Message, &q.results[i]
		if m.MsgID != "" && result.Err == nil {
			result.Err = unreadable
			if err := d.MsgIDs[m.MsgID].Err; err != nil {
				result.Err = err
			}
		}
		if m.Unique != "" && result.Err == nil {
			result.Err = d.Uniques[m.Unique].Err
		}
	}
	return nil
}
