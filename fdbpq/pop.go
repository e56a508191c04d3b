package fdbpq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pops is the pops and leases of one queue.
type pops struct {
	indexes []int  // into txOps.ops
	wants   [2]int // how many there are, by End
	bytes   int    // that they may return, at most NoBound
	waits   bool   // one of them has Waits
	leases  bool   // one of them is an OpLease

	share, together int // of what is read at once, bytes and items
	ends            state.Ends
	damaged         [2]error                 // by End: why no more items can be popped there: ErrCorrupt or ErrMoreExpired
	past            kv.Future[[]kv.KeyValue] // the first history of an item, if there is any
	later           kv.Future[[]kv.KeyValue] // what falls due next; nil unless waits
	due             time.Time                // when this transaction's first lease ends
	limits          popLimits
	expired         []*codec.Held // items that the walks have stepped over, to be removed
}

// pop runs the pops and leases in the order of ops. It reads both ends of each queue before
// it removes anything.
func (t *txOps) pop() error {
	queues := make([]*queueOps, 0, len(t.queues)) // that have pops
	for _, q := range t.queues {
		if q.pops != nil {
			queues = append(queues, q)
		}
	}
	for some := range slices.Chunk(queues, t.returned.AtOnce()) {
		if t.returned.Refused {
			for _, q := range some {
				refuse(t.results, q.pops.indexes)
			}
			continue
		}
		if err := t.popFrom(some); err != nil {
			return err
		}
	}
	return nil
}

// popFrom runs the pops and leases of some queues.
func (t *txOps) popFrom(queues []*queueOps) error {
	all := 0
	for _, q := range queues {
		all += q.pops.want()
	}
	for _, q := range queues {
		q.due.Begin()
		q.pops.share = min(t.returned.Share(q.pops.want(), all), max(q.pops.bytes, 1))
		q.pops.together = t.returned.AtOnce()
		q.pops.begin(&q.ledger)
		if q.pops.waits {
			q.pops.later = t.tx.Snapshot().GetRange(q.l.LaterRange(t.now), kv.RangeOptions{Limit: 1})
		}
	}
	for _, q := range queues {
		if err := q.pops.ends.Arrive(); err != nil {
			return err
		}
	}
	if err := t.refill(queues); err != nil {
		return err
	}
	for _, q := range queues {
		if err := t.beginPopLimits(q); err != nil {
			return err
		}
		q.pops.ends.BeginReads()
	}
	for _, q := range queues {
		if err := t.takeItems(q); err != nil {
			return err
		}
		if err := t.findNextDue(q); err != nil {
			return err
		}
	}
	return nil
}

// begin starts to read as many items as there are pops, and whether any item has a
// history.
func (p *pops) begin(g *state.Ledger) {
	p.past = g.FirstHistory()
	p.ends = state.WalkEnds(g.L, g.Tx, p.wants, p.share, p.together)
}

// want is how many items the pops want.
func (p *pops) want() int { return p.wants[Front] + p.wants[Back] }

// refill brings back what is due in the queues, and reads the items again where some came
// back.
func (t *txOps) refill(queues []*queueOps) error {
	dues := make([]*due.Due, len(queues))
	for i, q := range queues {
		dues[i] = &q.due
	}
	if err := t.bringBack(dues); err != nil {
		return err
	}
	for _, q := range queues {
		if q.due.Returned {
			q.pops.begin(&q.ledger)
		}
	}
	for _, q := range queues {
		if err := q.pops.ends.Arrive(); err != nil {
			return err
		}
	}
	return nil
}

// takeItems gives each pop and lease an item.
func (t *txOps) takeItems(q *queueOps) error {
	p := q.pops
	pasts, err := p.past.Get()
	if err != nil {
		return err
	}
	room := 0 // what is left of MaxBytes
	for _, i := range p.indexes {
		op := &t.ops[i]
		if !op.Follows || i == 0 || t.ops[i-1].Kind != op.Kind { // the first of its request
			room = op.MaxBytes
			for k := i; k < len(t.ops) && t.hasPlace(k); k++ {
				p.limits.kept--
			}
		}
		if op.Follows && i > 0 && t.results[i-1].Err != nil {
			t.results[i].Err = t.results[i-1].Err
			continue
		}
		err := t.takeItem(q, i, &room, len(pasts) > 0)
		if err = failOps(t.results, []int{i}, err); err != nil {
			return err
		}
	}
	p.ends.Release()
	return q.removeExpired()
}

// takeItem gives a pop or lease an item, or an error in its result. room is what is left of
// MaxBytes; pasts says whether items may have histories. The error is one of the store, or
// ErrCorrupt.
func (t *txOps) takeItem(q *queueOps, i int, room *int, pasts bool) error {
	op, p := &t.ops[i], q.pops
	if err := p.limits.paused; err != nil {
		t.results[i].Err = err
		return nil
	}
	if err := p.damaged[op.End]; err != nil {
		return err
	}
	wait, err := t.leaseLength(q, i)
	if err != nil {
		return err
	}
	s, err := t.nextLive(q, op.End)
	if errors.Is(err, state.ErrMoreExpired) {
		p.damaged[op.End] = err
		return err
	}
	if err != nil {
		return err
	}
	if s == nil {
		t.results[i].Err = cmp.Or(q.due.Err, ErrEmpty)
		if q.due.Behind() { // something may come back next
			t.results[i].Err = state.ErrNotYet
		}
		return nil
	}
	if s.Err != nil {
		// The item stays, and so do those behind it: serving them would break the order.
		p.damaged[op.End] = s.Err
		return s.Err
	}
	if op.Kind == OpLease {
		if err := q.leaseLimit(); err != nil {
			p.ends.Unread(op.End, s)
			if !errors.Is(err, ErrMaxLeased) {
				return err
			}
			t.results[i].Err = err
			if q.due.Behind() { // leases that count may be over
				t.results[i].Err = fmt.Errorf("%w, so far: %w", err, ErrNoRoom)
			}
			return nil
		}
	}
	if refused, err := t.complete(q, op, s, room); err != nil {
		return err
	} else if refused != nil {
		p.ends.Unread(op.End, s)
		t.results[i].Err = refused
		return nil
	}
	if s.Err != nil {
		p.damaged[op.End] = s.Err
		return s.Err
	}
	if op.Kind == OpLease && len(s.Pair.Value) > codec.MaxHeldValue {
		p.ends.Unread(op.End, s)
		t.results[i].Err = codec.ErrCannotHold
		return nil
	}
	if op.Kind == OpLease && !t.fits(len(s.Pair.Value)) || !t.returned.Take(s.Item.Message.Size()) {
		p.ends.Unread(op.End, s)
		t.results[i].Err = state.ErrNoRoom
		return nil
	}
	var past []byte
	if pasts {
		if past, err = state.ReadHistory(q.l, t.tx, &s.Item.ID).Get(); err != nil {
			return err
		}
	}
	if op.Kind == OpLease {
		if err := t.leaseItem(q, i, s, past, wait); err != nil {
			p.damaged[op.End] = err
			return err
		}
		p.ends.NoteTaken(op.End, s)
		s.Release()
		return nil
	}
	p.ends.NoteTaken(op.End, s)
	q.ledger.Pop(s)
	q.ledger.ClearHistory(&s.Item.ID, past)
	taken := s.Taken(q.l, past)
	s.Release()
	t.results[i].Item = *taken.Item
	t.popped = append(t.popped, taken)
	return nil
}

// complete reads all of an item, and takes it from room, what is left of MaxBytes. It returns why a pop or lease
// cannot have it, nil if it can; of an item that is too large it reads no more than it takes to know that.
func (t *txOps) complete(q *queueOps, op *Op, s *state.Stored, room *int) (refused, err error) {
	most := t.returned.Left()
	if op.MaxBytes > 0 {
		most = min(most, *room)
	}
	if s.Cut && t.returned.Refused {
		return state.ErrNoRoom, nil
	}
	if err := s.ReadRest(t.tx, q.l, most); err != nil {
		return nil, err
	}
	switch size := s.Item.Message.Size(); {
	case op.MaxBytes > 0 && (s.Cut && most == *room || size > *room):
		*room = -1
		return ErrMaxBytes, nil
	case s.Cut:
		t.returned.Refused = true
		return state.ErrNoRoom, nil
	case op.MaxBytes > 0:
		*room -= size
	}
	return nil, nil
}

// noteDue records when a lease that a pop gave ends.
func (p *pops) noteDue(at time.Time) { p.due = codec.Earliest(p.due, at) }

// findNextDue tells the pops that wait and have found nothing when the next item falls due.
func (t *txOps) findNextDue(q *queueOps) error {
	p := q.pops
	if !p.waits {
		return nil
	}
	entries, err := p.later.Get()
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		at, err := q.l.DueTime(entries[0].Key)
		if err == nil { // else whoever brings it back says what is wrong
			p.noteDue(at)
		}
	}
	p.noteDue(q.due.Next) // later was read before
	if p.limits.paused != nil {
		p.due = p.limits.paused.Until
	}
	for _, i := range p.indexes {
		if err := t.results[i].Err; t.ops[i].Waits && (errors.Is(err, ErrEmpty) || errors.Is(err, ErrMaxLeased)) {
			t.results[i].NextDue = p.due
		}
	}
	return nil
}
