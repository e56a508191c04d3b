package fdbpq

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// queuePops is the pops and leases of one queue, which run in their order, from whichever ends.
// Each finds the next item that may be served, checks whether the operation can have it, and takes
// it.
type queuePops struct {
	*queueTxn
	indexes []int // into txn.ops
	ends    state.Ends
	sides   [2]side // by End
	limits  popLimits
	served  state.Served

	share   int                      // of what is read at once, in bytes
	past    kv.Future[[]kv.KeyValue] // the first history of an item, if there is any
	later   kv.Future[[]kv.KeyValue] // what falls due next; nil unless an operation has Waits
	ready   kv.Future[[]byte]        // how many items are ready; nil unless an operation has Count
	nextDue time.Time                // of the leases that were given
}

func newQueuePops(q *queueTxn) *queuePops {
	p := &queuePops{queueTxn: q, limits: popLimits{queueTxn: q}}
	for end := range p.sides {
		p.sides[end].queuePops, p.sides[end].end = p, End(end)
	}
	return p
}

// checkPop returns an error if the queue does not support a pop, lease or peek.
func (op *Op) checkPop(l *codec.Layout) error {
	if op.Kind != OpLease || op.Lease != SettingsLease {
		if err := codec.CheckLease(op.Lease); err != nil {
			return err
		}
	}
	if err := settings.CheckHolder(op.Holder); err != nil {
		return badOp("%w", err)
	}

	switch {
	case op.End > Back:
		return badOp("no end %d", op.End)
	case l.Fifo && op.End == Back:
		return codec.ErrFIFOEnd
	}
	return nil
}

// leadsPops reports whether an operation is the first of pops, or leases, that share MaxBytes.
func (t *txn) leadsPops(i int) bool {
	return !t.ops[i].Follows || i == 0 || t.ops[i-1].Kind != t.ops[i].Kind
}

// pops holds the pops and leases of all queues.
type pops []*queuePops

// run takes items from a few queues at a time.
func (p pops) run() error {
	t := p[0].txn
	for some := range slices.Chunk(p, t.returned.AtOnce()) {
		if t.returned.Refused {
			for _, q := range some {
				q.failAll(q.indexes, state.ErrNoRoom)
			}
			continue
		}

		if err := some.runSome(t); err != nil {
			return err
		}
	}
	return nil
}

// runSome takes items from some queues. It reads both ends of each before it removes anything.
func (p pops) runSome(t *txn) error {
	all := 0
	for _, q := range p {
		all += len(q.indexes)
	}
	for _, q := range p {
		q.beginReads(all)
	}
	if err := p.bringBackDue(t); err != nil {
		return err
	}

	for _, q := range p {
		if err := q.limits.begin(q.indexes, &q.ends); err != nil {
			return err
		}
		for end := range q.ends.Walks {
			q.ends.Walks[end].BeginReads()
		}
	}
	return state.Each(p, (*queuePops).takeItems)
}

// bringBackDue brings back what is due in the queues, and reads the items again where some came
// back.
func (p pops) bringBackDue(t *txn) error {
	arrive := func(q *queuePops) error { return q.ends.Arrive() }
	if err := state.Each(p, arrive); err != nil {
		return err
	}

	dues := make([]*due.Due, len(p))
	for i, q := range p {
		dues[i] = &q.due
	}
	if err := t.moving.bringBack(dues); err != nil {
		return err
	}

	for _, q := range p {
		if q.due.Returned {
			q.beginWalks()
		}
	}
	return state.Each(p, arrive)
}

// beginReads starts to read the items and what is due. all is how many items the queues that are
// read together want.
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
	q.ends = state.WalkEnds(q.l, q.tx, want, q.share, q.returned.AtOnce())
}

// takeItems gives each pop and lease an item, or says why not.
func (q *queuePops) takeItems() error {
	pasts, err := q.past.Get()
	if err != nil {
		return err
	}

	roomBytes := 0 // what is left of MaxBytes
	for _, i := range q.indexes {
		op := &q.ops[i]
		if q.leadsPops(i) {
			roomBytes = op.MaxBytes
			q.limits.releasePlaces(i)
		}

		// What it follows has failed: an acknowledgement, or a pop of the same chain.
		if op.Follows && i > 0 && q.results[i-1].Err != nil {
			q.results[i].Err = q.results[i-1].Err
			continue
		}

		err := q.takeItem(i, &roomBytes, len(pasts) > 0)
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

// takeItem gives a pop or lease an item, or an error in its result. roomBytes is what is left of
// MaxBytes; pasts says whether items may have histories. The error is one of the store, ErrCorrupt,
// ErrNoRoom or ErrEmpty.
func (q *queuePops) takeItem(i int, roomBytes *int, pasts bool) error {
	op, result := &q.ops[i], &q.results[i]
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
	if result.Err, err = side.check(op, s, roomBytes); err != nil || result.Err != nil {
		return err
	}
	var past []byte
	if pasts {
		if past, err = state.ReadHistory(q.l, q.tx, &s.Item.ID).Get(); err != nil {
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
	q.moving.charge(q.l.GroupSizeOf(&s.Item.ID))
	q.limits.countDelivery(codec.GroupIn(&s.Item.ID), op.Kind == OpLease)
	side.dropTaken(s)
	return nil
}

// foundNothing is the error of a pop or lease that finds no item that it may have.
func (q *queuePops) foundNothing() error {
	none := q.limits.noneServed()
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
	n += q.ledger.Ready() + q.dead.Ready(q.l)
	q.results[i].Ready = max(n, 0)
	return nil
}

// findNextDue tells the pops that wait and have found nothing when the next item falls due.
func (q *queuePops) findNextDue() error {
	if q.later == nil {
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
		err := q.results[i].Err
		if q.ops[i].Waits && (errors.Is(err, ErrEmpty) || errors.Is(err, ErrMaxLeased)) {
			q.results[i].NextDue = next
		}
	}
	return nil
}
