package fdbpq

import (
	"errors"
	"fmt"
	"iter"
	"time"

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

// beginPushLimits starts to read how much there is in queues with a limit. The pushes conflict with all that
// changes the numbers.
func (t *txOps) beginPushLimits() error {
	for _, q := range t.queues {
		if len(q.pushes) == 0 {
			continue
		}
		settings, err := q.ledger.Limits()
		if err != nil {
			return err
		}
		if settings.MaxItems == 0 && settings.MaxBytes == 0 {
			continue
		}
		if t.blind && settings.Discard == DiscardOld {
			return errBlind
		}
		t.limited = true
		q.limits.settings = settings
		if err := t.countBytes(q); err != nil {
			return err
		}
		if q.limits.counting {
			continue
		}
		q.limits.counters = q.ledger.BeginLoad()
		if t.blind { // it must not read once it has written
			q.limits.due = t.tx.Snapshot().GetRange(q.l.DueRange(t.now), kv.RangeOptions{Limit: 1})
		}
	}
	return nil
}

// errBlind is for a blind transaction that has to read what it may have written: it may discard what it pushes, or
// what is due comes back first.
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

// countLoad waits for what beginPushLimits started. If the queue has no room for all its pushes, what is due
// in it comes back first, because items may leave the queue then.
func (t *txOps) countLoad(q *queueOps) error {
	limits := &q.limits
	if limits.settings == nil || limits.counting {
		return nil
	}
	var err error
	if limits.have, err = loadOf(limits.counters); err != nil {
		return err
	}
	wanted := limits.have.Plus(t.loadOfPushes(q, q.pushes))
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
	if err := t.bringBack([]*due.Due{&q.due}); err != nil {
		return err
	}
	limits.have = limits.have.Plus(q.ledger.Unwritten()) // the counters were read before
	return nil
}

// countBytes counts bytes of the queue that are not counted yet, as many as the transaction has room for, if the queue
// counts them.
func (t *txOps) countBytes(q *queueOps) error {
	g := &q.ledger
	if !g.CountsBytes() || g.Bytes.All || g.Err != nil {
		return g.Err
	}
	if t.blind {
		return errBlind
	}
	all, err := g.CountPage()
	q.limits.counting = !all
	delta := g.Bytes.Delta
	g.Bytes.Delta = 0
	state.AddToCounter(g.Tx, g.L.BytesKey(), delta) // BeginLoad reads it
	return err
}

// messageOf is the message of a push as it is stored.
func (t *txOps) messageOf(i int, s *Settings) Message {
	op := &t.ops[i]
	m := op.Message
	m.Expires = op.expires(t.now, s)
	return m
}

// loadOfPushes is what the pushes add to the queue.
func (t *txOps) loadOfPushes(q *queueOps, pushes []int) (n state.Load) {
	n.Items = int64(len(pushes))
	if q.limits.settings.MaxBytes > 0 {
		for _, i := range pushes {
			n.Bytes += int64(t.messageOf(i, q.limits.settings).Size())
		}
	}
	return n
}

// admit reports whether the queue has room for a group of pushes, or gets it, and fails them otherwise.
// Duplicates take none. The error is one of the store.
func (t *txOps) admit(q *queueOps, group []int) (bool, error) {
	if q.limits.settings == nil {
		return true, nil
	}
	added := q.dedup.OnlyNew(group, func(i int) *Message { return &t.ops[i].Message })
	if len(added) == 0 {
		return true, nil
	}
	refused, err := t.makeRoom(q, added)
	if errors.Is(err, ErrCorrupt) {
		refused, err = err, nil
	}
	if refused != nil {
		for _, i := range group {
			t.results[i].Err = refused
		}
	}
	return refused == nil, err
}

// makeRoom counts a group of pushes, and discards what has to go for it. refused says why it cannot be done.
// err is ErrCorrupt or one of the store, and then nothing has changed.
func (t *txOps) makeRoom(q *queueOps, group []int) (refused, err error) {
	limits := &q.limits
	if limits.counting {
		return ErrNoRoom, nil
	}
	s, more := limits.settings, t.loadOfPushes(q, group)
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

	last := t.ops[group[0]].Priority
	for _, i := range group {
		last = max(last, t.ops[i].Priority)
	}
	room, moves := t.room, t.moves
	v := &limits.victims
	v.begin(&q.ledger)
	for planned := (victimPlan{}); ; {
		next, err := v.next(&planned)
		switch {
		case err != nil:
			return nil, err
		case next == nil || !q.l.Fifo && next.H.ID.Priority <= last:
			t.room, t.moves = room, moves
			return fmt.Errorf("%w: nothing would be discarded before it but what is leased", refused), nil
		case v.read > victimBytes && planned.any() || !t.fits(state.SweptKeys*len(q.l.ItemKey(&next.H.ID))):
			return t.tooMany(q, refused, &planned, all.Minus(more), moves == 0)
		}
		planned.take(next)
		if all = all.Minus(next.Load); all.Exceeds(s) == nil {
			limits.have = all
			return nil, v.discard(&planned)
		}
	}
}

// notYet is for what may be possible in the next transaction.
func notYet(err error) error { return fmt.Errorf("%w, so far: %w", err, ErrNoRoom) }

// tooMany is for a group of pushes for which more would have to be discarded than the transaction has room
// for. If that is because the limits are exceeded already, it discards what it can; then the queue has left.
func (t *txOps) tooMany(q *queueOps, refused error, planned *victimPlan, left state.Load, alone bool) (error, error) {
	limits := &q.limits
	switch {
	case planned.any() && limits.have.Exceeds(limits.settings) != nil:
		limits.have = left
		return notYet(refused), limits.victims.discard(planned)
	case !alone:
		return notYet(refused), nil // the next transaction may have room
	}
	return fmt.Errorf("%w: more would have to be discarded than a transaction has room for", refused), nil
}

// discards reports whether items may be discarded for pushes.
func (p *pushLimits) discards() bool { return p.settings != nil && p.settings.Discard == DiscardOld }

// notePushedVictim records an item of this transaction's own, for pushes that come after it. The time is until
// when it is delayed.
func (q *queueOps) notePushedVictim(id ID, m Message, until time.Time) {
	h := &codec.Held{ID: id, History: codec.History{Lasting: codec.LastingOf(&m)}}
	if !until.IsZero() {
		h = codec.NewDelayed(&id, &m, until, nil)
	}
	h.Message = &m
	q.limits.victims.begin(&q.ledger)
	q.limits.victims.add(h, until.IsZero())
}

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

// pushGroups returns the pushes of a queue, those together that follow each other.
func (t *txOps) pushGroups(q *queueOps) iter.Seq[[]int] { return groups(t.ops, q.pushes) }

// groups returns the operations at the given indexes, those together that are done together or not at
// all: pushes that follow each other, and acknowledgements.
func groups(ops []Op, indexes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for rest := indexes; len(rest) > 0; {
			size := 1
			for size < len(rest) && rest[size] == rest[size-1]+1 && tied(ops, rest[size]) {
				size++
			}
			if !yield(rest[:size]) {
				return
			}
			rest = rest[size:]
		}
	}
}

// tied reports whether an operation and the one before it are done together or not at all.
func tied(ops []Op, i int) bool {
	kind := ops[i].Kind
	return i > 0 && ops[i].Follows && ops[i-1].Kind == kind && (kind == OpPush || kind == OpAck)
}
