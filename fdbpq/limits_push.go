package fdbpq

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pushLimits is what limits the pushes of one queue.
type pushLimits struct {
	settings *Settings                // nil if there is no limit
	counters []kv.Future[[]byte]      // of the items in all states
	due      kv.Future[[]kv.KeyValue] // something that is due; nil unless the transaction is blind
	have     state.Load
	counting bool // not all bytes are counted yet

	victims victims // with DiscardOld
}

// beginLimits starts to read how much there is in queues with a limit. The pushes conflict with all
// that changes the numbers.
func (p *pushes) beginLimits() error {
	for _, q := range p.queues {
		settings, err := q.ledger.Limits()
		if err != nil {
			return err
		}
		if settings.MaxItems == 0 && settings.MaxBytes == 0 {
			continue
		}

		p.limited = true
		if err := q.beginLoad(settings); err != nil {
			return err
		}
	}
	return nil
}

// beginLoad starts to read how much there is in the queue.
func (q *queuePushes) beginLoad(settings *Settings) error {
	if q.blind && settings.Discard == DiscardOld {
		return errBlind
	}
	q.limits.settings = settings
	if err := q.countBytes(); err != nil || q.limits.counting {
		return err
	}

	q.limits.counters = q.ledger.BeginLoad()
	if q.blind { // it must not read once it has written
		q.limits.due = q.snapshot.GetRange(q.l.DueRange(q.now), kv.RangeOptions{Limit: 1})
	}
	return nil
}

// errBlind is for a blind transaction that has to read what it may have written: it may evict what it
// pushes, or what is due comes back first.
var errBlind = errors.New("not a blind transaction")

// loadOf waits for what BeginLoad started.
func loadOf(counters []kv.Future[[]byte]) (have state.Load, err error) {
	for i, counter := range counters {
		n, err := state.ReadCounter(counter)
		switch {
		case err != nil:
			return have, err
		case i > codec.HeldStates:
			have.Bytes = n
		default:
			have.Items += n
		}
	}
	return have, nil
}

// countLoad waits for what beginLoad started. If the queue has no room for all its pushes, what is
// due in it comes back first, because items may leave the queue then.
func (q *queuePushes) countLoad() error {
	limits := &q.limits
	if limits.settings == nil || limits.counting {
		return nil
	}
	var err error
	if limits.have, err = loadOf(limits.counters); err != nil {
		return err
	}
	wanted := limits.have.Plus(q.loadOfPushes(q.indexes))
	if wanted.Exceeds(limits.settings) == nil || q.due.Handled {
		return nil
	}

	if limits.due != nil {
		entries, err := limits.due.Get()
		if len(entries) > 0 && err == nil {
			err = errBlind
		}
		return err
	}
	if err := q.bringBack([]*due.Due{&q.due}); err != nil {
		return err
	}
	limits.have = limits.have.Plus(q.ledger.Unwritten()) // the counters were read before
	return nil
}

// countBytes counts bytes of the queue that are not counted yet, as many as the transaction has room
// for, if the queue counts them.
func (q *queuePushes) countBytes() error {
	g := &q.ledger
	if !g.CountsBytes() || g.Bytes.All || g.Err != nil {
		return g.Err
	}
	if q.blind {
		return errBlind
	}

	all, err := g.CountPage()
	q.limits.counting = !all
	delta := g.Bytes.Delta
	g.Bytes.Delta = 0
	state.AddToCounter(g.Tx, g.L.BytesKey(), delta) // BeginLoad reads it
	return err
}

// loadOfPushes is what the pushes at the given indexes add to the queue.
func (q *queuePushes) loadOfPushes(pushes []int) (n state.Load) {
	n.Items = int64(len(pushes))
	if q.limits.settings.MaxBytes > 0 {
		for _, i := range pushes {
			m := q.messageOf(i, q.limits.settings)
			n.Bytes += int64(m.Size())
		}
	}
	return n
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

	refused, err := q.makeRoom(added)
	if errors.Is(err, ErrCorrupt) {
		refused, err = err, nil
	}
	if refused != nil {
		q.failAll(group, refused)
	}
	return refused == nil, err
}

// makeRoom counts a group of pushes, and evicts what has to go for it. refused says why it cannot be
// done. err is ErrCorrupt or one of the store, and then nothing has changed.
func (q *queuePushes) makeRoom(group []int) (refused, err error) {
	limits := &q.limits
	if limits.counting {
		return ErrNoRoom, nil
	}

	s, more := limits.settings, q.loadOfPushes(group)
	all := limits.have.Plus(more)
	full := all.Exceeds(s)
	if full == nil {
		limits.have = all
		return nil, nil
	}

	refused = limits.describe(full, more)
	if q.due.Behind() { // items may leave the queue next
		return notYet(refused), nil
	}
	if s.Discard != DiscardOld {
		return refused, nil
	}
	if more.Exceeds(s) != nil {
		return fmt.Errorf("%w: nothing that could be discarded makes room for this", refused), nil
	}
	return q.evict(group, more, refused)
}

// evict removes items until the queue has room for a group of pushes, which adds more. If it cannot
// have room, it returns refused, completed.
func (q *queuePushes) evict(group []int, more state.Load, refused error) (error, error) {
	// A push evicts nothing that would be served before it.
	last := q.ops[group[0]].Priority
	for _, i := range group {
		last = max(last, q.ops[i].Priority)
	}

	limits, before := &q.limits, q.moving
	all := limits.have.Plus(more)
	v := &limits.victims
	v.prepare(&q.ledger)
	for planned := (victimPlan{}); ; {
		next, err := v.next(&planned)
		switch {
		case err != nil:
			return nil, err
		case next == nil || !q.l.Fifo && next.H.ID.Priority <= last:
			q.moving = before
			return fmt.Errorf("%w: nothing would be discarded before it but what is leased", refused), nil
		case v.read > victimBytes && planned.any() || !q.moving.fits(state.SweptKeys*len(q.l.ItemKey(&next.H.ID))):
			return q.tooMany(refused, &planned, all.Minus(more), before.moves == 0)
		}

		planned.include(next)
		if all = all.Minus(next.Load); all.Exceeds(limits.settings) == nil {
			limits.have = all
			return nil, v.evict(&planned)
		}
	}
}

// tooMany is for a group of pushes for which more would have to go than the transaction has room for.
// If that is because the limits are exceeded already, it evicts what it can, and left is what the
// queue has then.
func (q *queuePushes) tooMany(refused error, planned *victimPlan, left state.Load, alone bool) (error, error) {
	limits := &q.limits
	switch {
	case planned.any() && limits.have.Exceeds(limits.settings) != nil:
		limits.have = left
		return notYet(refused), limits.victims.evict(planned)
	case !alone:
		return notYet(refused), nil // the next transaction may have room
	}
	return fmt.Errorf("%w: more would have to be discarded than a transaction has room for", refused), nil
}

// evicts reports whether items may be evicted for pushes.
func (p *pushLimits) evicts() bool { return p.settings != nil && p.settings.Discard == DiscardOld }

// describe completes the error of pushes that take a queue beyond a limit.
func (p *pushLimits) describe(full error, more state.Load) error {
	if errors.Is(full, ErrFullBytes) {
		return fmt.Errorf("%w: its items have %d bytes, with those that are leased or delayed, no room for %d more, and max_bytes is %d",
			full, p.have.Bytes, more.Bytes, p.settings.MaxBytes)
	}
	err := fmt.Errorf("%w: it has %d items, with those that are leased or delayed, and max_items is %d", full, p.have.Items, p.settings.MaxItems)
	if more.Items > 1 {
		err = fmt.Errorf("%w: no room for %d more", err, more.Items)
	}
	return err
}
