package fdbpq

import (
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pops is the pops and leases.
type pops struct {
	*txn
	queues []*queuePops

	popped  []state.TakenItem // in order of removal
	stepped state.Stepped     // expired items that were met
}

// queuePops is those of one queue. They run in their order, from whichever ends.
type queuePops struct {
	*queueTxn
	all     *pops
	indexes []int  // into txn.ops
	wants   [2]int // how many there are, by End
	bytes   int    // that they may return, at most NoBound
	waits   bool   // one of them has Waits
	leases  bool   // one of them is an OpLease
	counts  bool   // one of them has Count

	share, together int // of what is read at once, bytes and items
	ends            state.Ends
	damaged         [2]error                 // by End: why no more items can be popped there: ErrCorrupt or ErrMoreExpired
	past            kv.Future[[]kv.KeyValue] // the first history of an item, if there is any
	later           kv.Future[[]kv.KeyValue] // what falls due next; nil unless waits
	nextDue         time.Time                // of later, and of the leases that were given
	ready           kv.Future[[]byte]        // how many items are ready; nil unless counts
	limits          popLimits
	groups          groupLimits
	searches        [2]*search // by End; nil while the walk goes on
	unindexed       [2]bool    // by End: the walk goes on because of items that are in no index
	served          state.Served
	expired         []*codec.Record // items that the walks have stepped over, to be removed
}

// include counts an operation that was added to indexes.
func (q *queuePops) include(i int) {
	op := &q.ops[i]
	q.wants[op.End]++
	if q.leadsPops(i) {
		if op.MaxBytes == 0 {
			q.bytes = state.NoBound
		}
		q.bytes = min(q.bytes+op.MaxBytes, state.NoBound)
	}
	q.waits = q.waits || op.Waits
	q.counts = q.counts || op.Count
	q.leases = q.leases || op.Kind == OpLease
}

// run takes items from a few queues at a time.
func (p *pops) run() error {
	for some := range slices.Chunk(p.queues, p.returned.AtOnce()) {
		if p.returned.Refused {
			for _, q := range some {
				q.failAll(q.indexes, state.ErrNoRoom)
			}
			continue
		}

		if err := p.runSome(some); err != nil {
			return err
		}
	}
	return nil
}

// runSome takes items from some queues. It reads both ends of each before it removes anything.
func (p *pops) runSome(queues []*queuePops) error {
	all := 0
	for _, q := range queues {
		all += q.want()
	}
	for _, q := range queues {
		q.beginReads(all)
	}
	if err := p.bringBackDue(queues); err != nil {
		return err
	}

	for _, q := range queues {
		if err := q.beginLimits(); err != nil {
			return err
		}
		q.ends.BeginReads()
	}
	return each(queues, (*queuePops).takeItems)
}

// bringBackDue brings back what is due in the queues, and reads the items again where some came
// back.
func (p *pops) bringBackDue(queues []*queuePops) error {
	arrive := func(q *queuePops) error { return q.ends.Arrive() }
	if err := each(queues, arrive); err != nil {
		return err
	}

	dues := make([]*due.Due, len(queues))
	for i, q := range queues {
		dues[i] = &q.due
	}
	if err := p.bringBack(dues); err != nil {
		return err
	}

	for _, q := range queues {
		if q.due.Returned {
			q.beginWalks()
		}
	}
	return each(queues, arrive)
}

// want is how many items the pops want.
func (q *queuePops) want() int { return q.wants[Front] + q.wants[Back] }

// beginReads starts to read the items and what is due. The queues that are read with it want that
// many items together.
func (q *queuePops) beginReads(all int) {
	q.due.ReadIndex()
	q.share = min(q.returned.Share(q.want(), all), max(q.bytes, 1))
	q.together = q.returned.AtOnce()
	q.beginWalks()
	if q.counts {
		q.ready = q.snapshot.Get(q.l.TotalKey())
	}
	if q.waits {
		q.later = q.snapshot.GetRange(q.l.LaterRange(q.now), kv.RangeOptions{Limit: 1})
	}
}

// beginWalks starts to read as many items as there are pops, and whether any item has a history.
func (q *queuePops) beginWalks() {
	q.past = q.ledger.FirstHistory()
	q.ends = state.WalkEnds(q.l, q.tx, q.wants, q.share, q.together)
}

// takeItems gives each pop and lease an item, or says why not.
func (q *queuePops) takeItems() error {
	pasts, err := q.past.Get()
	if err != nil {
		return err
	}

	room := 0 // what is left of MaxBytes
	for _, i := range q.indexes {
		op := &q.ops[i]
		if q.leadsPops(i) {
			room = op.MaxBytes
			q.limits.releasePlaces(i)
		}
		if op.Follows && i > 0 && q.results[i-1].Err != nil {
			q.results[i].Err = q.results[i-1].Err
			continue
		}

		err := q.takeItem(i, &room, len(pasts) > 0)
		if op.Count && err == nil {
			err = q.countReady(i)
		}
		if err = q.failOps(err, i); err != nil {
			return err
		}
	}
	q.ends.Release()
	clear(q.searches[:]) // they hold values
	if err := q.removeExpired(); err != nil {
		return err
	}
	if err := q.writeTaken(); err != nil {
		return err
	}
	return q.findNextDue()
}

// takeItem gives a pop or lease an item, or an error in its result. room is what is left of
// MaxBytes; pasts says whether items may have histories. The error is one of the store, or
// ErrCorrupt.
func (q *queuePops) takeItem(i int, room *int, pasts bool) error {
	op, result := &q.ops[i], &q.results[i]
	if err := q.limits.closed(); errors.Is(err, ErrEmpty) {
		result.Err = err
		return nil
	} else if err != nil {
		return err
	}
	if err := q.damaged[op.End]; err != nil {
		return err
	}
	length, err := q.leaseLength(i)
	if err != nil {
		return err
	}

	s, err := q.nextLive(op.End)
	switch {
	case errors.Is(err, state.ErrMoreExpired):
		return q.damage(op.End, err)
	case err != nil:
		return err
	case s == nil:
		result.Err = q.foundNothing()
		return nil
	}

	refused, err := q.checkItem(op, s, room)
	if err != nil {
		return err
	}
	if refused != nil {
		q.unread(op.End, s)
		result.Err = refused
		return nil
	}

	var past []byte
	if pasts {
		if past, err = state.ReadHistory(q.l, q.tx, &s.Item.ID).Get(); err != nil {
			return err
		}
	}
	q.noteTaken(op, &s.Item.ID)
	if op.Kind == OpLease {
		return q.leaseItem(i, s, past, length)
	}
	q.popItem(i, s, past)
	return nil
}

// nextLive returns the next item from an end, read in full, nil if there is none. It has expired
// ones on the way removed. The error is ErrMoreExpired or one of the store.
func (q *queuePops) nextLive(end End) (*state.Stored, error) {
	for {
		s, err := q.nextOf(end)
		if err != nil || s == nil {
			return nil, err
		}
		if end == Front {
			q.served.Begin(&q.ledger, &s.Item.ID)
		}
		if has, err := s.ReadUnlessExpired(q.tx, q.l, q.now, q.returned.Page()); err != nil || !has {
			return s, err
		}

		if q.all.stepped.Enough() || q.moving.forExpired() <= 0 {
			return nil, state.ErrMoreExpired
		}
		q.all.stepped.Note(s)
		q.moving.takeExpired(state.ExpiredSize(q.l, &s.Item.ID, s.Item.Unique))
		q.ends.NoteExpired(end, s)
		q.expired = append(q.expired, s.ExpiredItem(q.l))
	}
}

// damage records why no more items can be popped at an end. Items that cannot be read stay, and so
// do those behind them: serving them would break the order.
func (q *queuePops) damage(end End, err error) error {
	q.damaged[end] = err
	return err
}

// checkItem reads all of an item. It returns why the operation cannot have it, nil if it can. The
// error is one of the store, or ErrCorrupt.
func (q *queuePops) checkItem(op *Op, s *state.Stored, room *int) (refused, err error) {
	if s.Err != nil {
		return nil, q.damage(op.End, s.Err)
	}
	if op.Kind == OpLease {
		err := q.limits.checkLease()
		if errors.Is(err, ErrMaxLeased) {
			if q.due.Behind() { // leases that count may be over
				err = notYet(err)
			}
			return err, nil
		}
		if err != nil {
			q.unread(op.End, s)
			return nil, err
		}
	}

	if refused, err := q.complete(op, s, room); refused != nil || err != nil {
		return refused, err
	}
	switch size := len(s.Pair.Value); {
	case s.Err != nil:
		return nil, q.damage(op.End, s.Err)
	case op.Kind == OpLease && size > codec.MaxHeldValue:
		return codec.ErrCannotHold, nil
	case op.Kind == OpLease && !q.moving.fits(size) || !q.returned.Admit(s.Item.Message.Size()):
		return state.ErrNoRoom, nil
	}
	return nil, nil
}

// complete reads all of an item, and takes it from room, what is left of MaxBytes. It returns why a
// pop or lease cannot have it, nil if it can; of an item that is too large it reads no more than it
// takes to know that.
func (q *queuePops) complete(op *Op, s *state.Stored, room *int) (refused, err error) {
	most := q.returned.Left()
	if op.MaxBytes > 0 {
		most = min(most, *room)
	}
	if s.Cut && q.returned.Refused {
		return state.ErrNoRoom, nil
	}
	if err := s.ReadRest(q.tx, q.l, most); err != nil {
		return nil, err
	}

	switch size := s.Item.Message.Size(); {
	case op.MaxBytes > 0 && (s.Cut && most == *room || size > *room):
		*room = -1
		return ErrMaxBytes, nil
	case s.Cut:
		q.returned.Refused = true
		return state.ErrNoRoom, nil
	case op.MaxBytes > 0:
		*room -= size
	}
	return nil, nil
}

// popItem removes an item, with its history as it is stored.
func (q *queuePops) popItem(i int, s *state.Stored, past []byte) {
	q.ends.NoteTaken(q.ops[i].End, s)
	q.ledger.Pop(s)
	q.ledger.ClearHistory(&s.Item.ID, past)
	taken := s.Taken(q.l, past)
	s.Release()

	q.results[i].Item = *taken.Item
	q.all.popped = append(q.all.popped, taken)
}

// removeExpired removes what nextLive has stepped over. That comes last, because a store may have
// to look through all that a transaction has written for each read that follows. The error is one
// of the store.
func (q *queuePops) removeExpired() error {
	if len(q.expired) == 0 {
		return nil
	}
	q.due.Done = true
	return state.RemoveExpired(&state.Expiries{G: &q.ledger, Items: q.expired, Walked: true})
}
