package fdbpq

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queuePushes is the pushes of one queue. Pushes must not conflict with pushes, so they read
// without conflict, unless there is a limit, a message id or a unique key.
type queuePushes struct {
	familyOps

	listEntry kv.Future[[]byte]          // nil if known to be there
	last      map[int64]kv.Future[int64] // by priority: counts that are being read
	next      map[int64]int64            // by priority: counts for the next item
	turns     state.Turns                // of groups
	dedup     *state.Dedup               // nil without message ids and unique keys
	limits    pushLimits
}

// rereadUniques starts to read again the unique keys of queues where that may have changed.
func rereadUniques(pushes []*queuePushes) {
	for _, q := range pushes {
		if q.ledger.Wrote() && q.unique() {
			for key, read := range q.dedup.Uniques {
				read.Value = q.tx.Get(q.l.UniqueKey(key))
			}
		}
	}
}

// beginLimits starts to read how much there is in queues with a limit.
func (t *txn) beginLimits(pushes []*queuePushes) error {
	for _, q := range pushes {
		settings, err := q.ledger.ReadableSettings()
		if err != nil {
			return err
		}
		if settings.MaxItems == 0 && settings.MaxBytes == 0 {
			continue
		}

		t.limited = true
		if err := q.limits.beginLoad(settings); err != nil {
			return err
		}
	}
	return nil
}

// unique reports whether a push has a unique key.
func (q *queuePushes) unique() bool { return q.dedup != nil && len(q.dedup.Uniques) > 0 }

// beginReads starts to read the entry in the list of queues, the last items of priorities, and what
// message ids and unique keys stand for.
func (q *queuePushes) beginReads() {
	q.refuseLarge()
	q.dedup = q.beginDedup()
	if q.l.List != nil && !q.l.RecentlyListed(q.now) {
		q.listEntry = q.snapshot.Get(q.l.ListKey())
	}

	q.last, q.next = make(map[int64]kv.Future[int64]), make(map[int64]int64)
	known := q.cache.Counts(q.l)
	for _, i := range q.indexes {
		p := q.ops[i].priorityIn(q.l)
		if count, ok := known[p]; ok {
			q.next[p] = count
		} else if _, ok := q.last[p]; !ok {
			q.last[p] = state.ReadNextCount(q.l, q.snapshot, p)
		}

		if joiner := q.ops[i].Message.Joiner; joiner != nil && q.results[i].Err == nil {
			q.ledger.BeginJoiner(joiner)
		}
		if group := q.ops[i].Message.Group(); group != "" {
			q.turns.Want(&q.ledger, q.ledger.HashGroup(group), p)
		}
	}
	q.turns.BeginReads()
}

// run waits for the reads, fails the pushes that are not possible, and adds the others.
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
	if q.dedup != nil {
		if err := q.loadDedup(); err != nil {
			return err
		}
	}

	q.failChains(corrupt, settings)
	if q.limits.settings != nil {
		err := q.limits.countLoad(q.indexes)
		if err = q.failOps(err, q.indexes...); err != nil {
			return err
		}
	}
	if err := q.dedup.RemoveOver(&q.ledger); err != nil {
		return err
	}
	q.nextCounts[q.l.Prefix] = q.next
	return q.addItems(settings)
}

// addItems adds the items of the chains that have not failed, as far as there is room.
func (q *queuePushes) addItems(settings *Settings) error {
	random := codec.UniqueBytes(len(q.indexes)) // for all ids at once
	for chain := range chains(q.ops, q.indexes) {
		if q.results[chain[0]].Err != nil { // as the others
			continue
		}
		err := q.checkJoins(chain, settings)
		if err == nil && q.limits.settings != nil {
			err = q.admit(chain)
		}
		if err != nil {
			if err = q.failOps(err, chain...); err != nil {
				return err
			}
			continue
		}

		for _, i := range chain {
			q.addItem(i, settings, random[:codec.UniqueSize])
			random = random[codec.UniqueSize:]
		}
	}
	return nil
}

// admit finds or makes room for a chain of pushes. The error is for the pushes, or one of the
// store.
func (q *queuePushes) admit(chain []int) error {
	// The duplicates of a chain are judged as of its beginning, before it evicts anything.
	if v := q.limits.victims; v != nil {
		for _, gone := range v.gone {
			q.dedup.Forget(gone.item)
		}
		v.gone = nil
	}
	added := q.dedup.OnlyNew(chain, func(i int) *Message { return &q.ops[i].Message })
	if len(added) == 0 { // duplicates take no room
		return nil
	}
	return q.limits.makeRoom(chain, added)
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

		if minCount, ok := q.minCounts[q.l.Prefix][p]; ok {
			count = max(count, minCount)
		}
		q.next[p] = count
	}
	return corrupt, q.turns.Load(q.next, corrupt)
}

// addItem adds the item of a push, unless that is a duplicate.
func (q *queuePushes) addItem(i int, settings *Settings, random []byte) {
	op, result := &q.ops[i], &q.results[i]
	if first := q.dedup.First(&op.Message); first != nil {
		result.Item = Item{ID: *first, PushedAt: codec.PushedAt(first)}
		result.Duplicate = true
		return
	}

	// Items of a group get the counts of its turns, all others the next count of their priority.
	m, p := q.messageOf(i, settings), op.priorityIn(q.l)
	group, place := q.ledger.GroupOf(&m, settings), codec.TurnItem{Count: q.next[p]}
	if group > codec.NoGroup {
		place = q.turns.Next(group, p, max(op.Weight, 1), place.Count)
	}
	q.next[p] = max(q.next[p], codec.Following(place.Count))

	id := codec.NewID(p, place.Count, q.now, random, q.l.Flags(&m))
	codec.SetGroup(&id, group, place.Number)
	result.Item = Item{ID: id, PushedAt: codec.PushedAt(&id)}
	q.dedup.Pushed(&q.ledger, &id, &m)

	until := op.heldUntil(q.now)
	if until.IsZero() {
		q.ledger.Add(&id, &m)
		q.pushed = true
	} else {
		q.ledger.AddDelayed(&id, &m, until)
		result.NextDue = until
	}
	if q.limits.victims != nil {
		q.limits.victims.notePushed(id, m, until)
	}
}

// ensureListed adds the queue to the list of queues if it is missing, and removes a mark of Retire,
// which would take it off.
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
	q.listed = append(q.listed, q.l)
	return nil
}

// refuseLarge fails chains that are too large whatever the settings are, before anything is read
// for them: FoundationDB's client takes more memory for thousands of reads than for the items.
func (q *queuePushes) refuseLarge() {
	kept := q.indexes[:0]
	for chain := range chains(q.ops, q.indexes) {
		if err := q.checkSize(chain, &Settings{}); err != nil {
			q.failAll(chain, err)
		} else {
			kept = append(kept, chain...)
		}
	}
	q.indexes = kept
}

// failChains fails the pushes at priorities with corrupt items, chains that are too large, and the
// rest of their chains.
func (q *queuePushes) failChains(corrupt map[int64]error, settings *Settings) {
	for chain := range chains(q.ops, q.indexes) {
		var failed error
		for n, i := range chain {
			err := cmp.Or(q.results[i].Err, corrupt[q.ops[i].priorityIn(q.l)])
			if err != nil && len(chain) > 1 {
				err = fmt.Errorf("item %d: %w", n, err)
			}
			failed = cmp.Or(failed, err)
		}

		if failed == nil {
			failed = q.checkSize(chain, settings)
		}
		if failed != nil {
			q.failAll(chain, failed)
		}
	}
}

// maxChain is the most bytes of a chain. It leaves room in a transaction for the receipt and the
// list of queues.
const maxChain = kv.MaxTransactionSize - 100_000

// checkSize returns an error if the pushes of a chain do not fit into one transaction.
func (q *queuePushes) checkSize(chain []int, settings *Settings) error {
	if len(chain) == 1 {
		return nil
	}

	size, joiners := 0, map[Joiner]bool{}
	for _, i := range chain {
		m := q.messageOf(i, settings)
		size += q.l.PushSize(&m, q.ops[i].delays())
		if m.Join > 0 || q.ops[i].MemberOf == 0 && m.Joiner != nil && !joiners[*m.Joiner] {
			size += q.l.JoinSize(&m)
		}
		if m.Joiner != nil {
			joiners[*m.Joiner] = true
		}
	}
	if size > maxChain {
		const text = "%w: %d items take %d bytes in a transaction: " +
			"want at most %d: push them in several"
		return fmt.Errorf(text, ErrMessageTooLarge, len(chain), size, maxChain)
	}
	return nil
}

// beginDedup starts to read the rows of the message ids and unique keys of the pushes, with
// conflict. It returns nil if there are none.
func (q *queuePushes) beginDedup() (d *state.Dedup) {
	for _, i := range q.indexes {
		m := &q.ops[i].Message
		if m.MsgID == "" && m.Unique == "" || q.results[i].Err != nil {
			continue
		}

		if d == nil {
			d = &state.Dedup{}
			d.MsgIDs, d.Uniques = map[string]*state.DedupRead{}, map[string]*state.DedupRead{}
		}
		if m.MsgID != "" && d.MsgIDs[m.MsgID] == nil {
			d.MsgIDs[m.MsgID] = &state.DedupRead{Value: q.tx.Get(q.l.MsgIDKey(m.MsgID))}
		}
		if m.Unique != "" && d.Uniques[m.Unique] == nil {
			d.Uniques[m.Unique] = &state.DedupRead{Value: q.tx.Get(q.l.UniqueKey(m.Unique))}
		}
	}

	// Each new message id removes a few whose window is over.
	if d != nil && len(d.MsgIDs) > 0 {
		page := kv.RangeOptions{Limit: codec.OverPage * len(d.MsgIDs)}
		d.Over = q.snapshot.GetRange(q.l.OverRange(q.now), page)
	}
	return d
}

// loadDedup waits for what beginDedup started, and fails the pushes whose keys cannot be read. The
// error is one of the store.
func (q *queuePushes) loadDedup() error {
	d := q.dedup
	// Without the settings, it is unknown how long message ids count.
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

	for _, id := range d.MsgIDs {
		if err := id.Parse(codec.ParseSeen); err != nil {
			return err
		}
		id.Found = id.Found && id.Seen.Until.After(q.now)
	}
	if err := d.LoadUniques(q.snapshot, q.l); err != nil {
		return err
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
			unique := d.Uniques[m.Unique]
			result.Err = unique.Err
			if unique.Found && q.due.Behind() { // its item may have expired
				result.Err = ErrNoRoom
			}
		}
	}
	return nil
}
