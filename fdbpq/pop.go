package fdbpq

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// runPops takes items from a few queues at a time.
func (t *txn) runPops(pops []*queuePops) error {
	for some := range slices.Chunk(pops, t.returned.AtOnce()) {
		if t.returned.Refused {
			for _, q := range some {
				q.failAll(q.indexes, state.ErrNoRoom)
			}
			continue
		}

		if err := t.popSome(some); err != nil {
			return err
		}
	}
	return nil
}

// popSome takes items from some queues. It reads both ends of each before it removes anything.
func (t *txn) popSome(queues []*queuePops) error {
	all := 0
	for _, q := range queues {
		all += len(q.indexes)
	}
	for _, q := range queues {
		q.beginReads(all)
	}
	if err := t.bringBackDue(queues); err != nil {
		return err
	}

	for _, q := range queues {
		if err := q.limits.begin(q.indexes, &q.ends); err != nil {
			return err
		}
		for end := range q.ends.Walks {
			q.ends.Walks[end].BeginReads()
		}
	}
	return state.Each(queues, (*queuePops).takeItems)
}

// bringBackDue brings back the due items of the queues, and reads again where some came back.
func (t *txn) bringBackDue(queues []*queuePops) error {
	arrive := func(q *queuePops) error { return q.ends.Arrive() }
	if err := state.Each(queues, arrive); err != nil {
		return err
	}

	dues := make([]*due.Due, len(queues))
	for i, q := range queues {
		dues[i] = &q.due
	}
	if err := t.moving.bringBack(dues); err != nil {
		return err
	}

	for _, q := range queues {
		if q.due.Returned {
			q.beginWalks()
		}
	}
	return state.Each(queues, arrive)
}

// beginReads starts to read the items and the due entries. all is how many items the queues that
// are read together want.
func (q *queuePops) beginReads(all int) {
	bytes := 0 // that the operations may return
	counts, waits := false, false
	for _, i := range q.indexes {
		op := &q.ops[i]
		counts, waits = counts || op.Count, waits || op.Waits
		if !q.leadsPops(i) {
			continue
		}
		bytes = min(bytes+cmp.Or(op.MaxBytes, state.NoBound), state.NoBound)
	}
	for end := range q.sides {
		q.sides[end].queuePops, q.sides[end].end = q, End(end)
	}
	q.share = min(q.returned.Share(len(q.indexes), all), max(bytes, 1))

	q.due.ReadIndex()
	q.beginWalks()
	if counts {
		q.ready = q.snapshot.Get(q.l.TotalKey())
	}
	if waits {
		q.later = q.snapshot.GetRange(q.l.LaterRange(q.now), kv.RangeOptions{Limit: 1})
	}
}

// beginWalks starts to read as many items as there are pops, and whether any item has a history.
func (q *queuePops) beginWalks() {
	q.past = q.ledger.FirstHistory()
	want := [2]int{q.sides[Front].want, q.sides[Back].want}
	q.ends = q.ledger.WalkEnds(q.tx, want, q.share, q.returned.AtOnce())
}

// takeItems gives each pop and lease an item, or says why not.
func (q *queuePops) takeItems() error {
	bytesLeft := 0 // the rest of MaxBytes
	for _, i := range q.indexes {
		op := &q.ops[i]
		if q.leadsPops(i) {
			bytesLeft = op.MaxBytes
			q.limits.releasePlaces(i)
		}

		// What it follows has failed: an acknowledgement, or a pop of the same chain.
		if op.Follows && i > 0 && q.results[i-1].Err != nil {
			q.results[i].Err = q.results[i-1].Err
			continue
		}

		err := q.takeItem(i, &bytesLeft)
		if op.Count && (err == nil || errors.Is(err, ErrEmpty)) {
			err = cmp.Or(q.countReady(i), err)
		}
		if err = q.failOps(err, i); err != nil {
			return err
		}
	}

	q.ends, q.sides = state.Ends{}, [2]side{} // they hold values
	q.limits.write()
	if err := q.served.Write(); err != nil {
		return err
	}
	return q.findNextDue()
}

// takeItem gives a pop or lease an item. bytesLeft is the rest of MaxBytes. The error says why the
// operation gets none, or is one of the store.
func (q *queuePops) takeItem(i int, bytesLeft *int) error {
	op := &q.ops[i]
	if err := q.limits.closed(); err != nil {
		return err
	}
	length, err := q.leaseLength(i)
	if err != nil {
		return err
	}

	// Find.
	side := &q.sides[op.End]
	s, err := side.find()
	if err != nil {
		return err
	}
	if s == nil {
		return q.foundNothing()
	}

	// Check.
	if err := side.check(op, s, bytesLeft); err != nil {
		return err
	}
	past, err := q.history(&s.Item.ID)
	if err != nil {
		return err
	}

	if past != nil && op.Kind == OpPop {
		size := q.ledger.ForgetSize(state.RecordOf(&s.Item.ID, past))
		if err := q.moving.forget(size); err != nil {
			return err
		}
	}

	// Take.
	if op.Kind == OpLease {
		if err := q.leaseItem(i, s, past, length); err != nil {
			return err
		}
	} else {
		q.popItem(i, s, past)
	}
	q.moving.charge(q.l.IndexSizeOf(&s.Item.ID))
	q.limits.countDelivery(codec.GroupIn(&s.Item.ID), op.Kind == OpLease)
	side.dropTaken(s)
	return nil
}

// history returns the history of an item, nil if it has none. Items before the first that has one
// need no read, which would be a round trip for each item.
func (q *queuePops) history(id *codec.ID) ([]byte, error) {
	pasts, err := q.past.Get()
	if err != nil || len(pasts) == 0 || bytes.Compare(q.l.HistoryKey(id), pasts[0].Key) < 0 {
		return nil, err
	}
	return state.ReadHistory(q.l, q.tx, id).Get()
}

// foundNothing is the error of a pop or lease that finds no item that it may have.
func (q *queuePops) foundNothing() error {
	var none error // of groups, if only items were found that had to be passed over
	if set := q.limits.set; q.limits.passedOver {
		paused := len(set.PausedGroups) > 0
		none = &GroupLimitsError{set.MaxLeasedPerGroup, set.RatePerGroup, paused}
	}
	switch {
	case q.due.Behind() && none != nil: // leases that count may be over
		return notYet(none)
	case q.due.Behind(): // something may come back next
		return state.ErrNotYet
	case q.due.Err != nil:
		return q.due.Err
	case none != nil:
		return none
	}
	return ErrEmpty
}

// countReady tells a pop how many items are ready after it. The error is one of the store.
func (q *queuePops) countReady(i int) error {
	n, err := state.ReadCounter(q.ready)
	if err != nil {
		return codec.UnlessCorrupt(err) // the item is taken all the same
	}

	// The counter does not have what this transaction has still to write.
	n += q.ledger.Ready() + q.outgoing.Ready(q.l)
	q.results[i].Ready = max(n, 0)
	return nil
}

// findNextDue tells the pops that wait and have found nothing when the next item falls due.
func (q *queuePops) findNextDue() error {
	waits := func(i int) bool {
		err := q.results[i].Err
		return q.ops[i].Waits && (errors.Is(err, ErrEmpty) || errors.Is(err, ErrMaxLeased))
	}
	if !slices.ContainsFunc(q.indexes, waits) {
		return nil
	}
	entries, err := q.later.Get()
	if err != nil {
		return err
	}

	// What this transaction has added to the time index was not there when q.later was read.
	next := codec.Earliest(q.nextDue, q.due.Next)
	next = codec.Earliest(next, q.limits.next)
	if len(entries) > 0 {
		// What cannot be read here is reported when it is brought back.
		if at, err := q.l.DueTime(entries[0].Key); err == nil {
			next = codec.Earliest(next, at)
		}
	}
	if paused := codec.PausedAt(q.limits.set, q.now); paused != nil {
		next = paused.Until
	}

	for _, i := range q.indexes {
		if waits(i) {
			q.results[i].NextDue = next
		}
	}
	return nil
}
