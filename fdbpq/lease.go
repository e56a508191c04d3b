package fdbpq

import (
	"cmp"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// Lease is the right to an item for a time.
type Lease struct {
	// Token is for OpAck, OpNak, OpExtend and OpTerm.
	Token Token
	// Until is when the item goes back to the queue unless the lease ends before, by
	// the clock of the process that gave the lease.
	Until time.Time
	// Deliveries is how many times the item was delivered, this time included.
	Deliveries int64
}

// settlements is the operations with tokens on one queue. They run before the pops, so that
// what they end is settled, and what they give back can be popped.
type settlements struct {
	indexes []int // into txOps.ops
	reads   []state.HeldRead
	burials []*due.Burial // by place in indexes; nil unless the item seems to die

	from, to int               // places in indexes: these are being read
	done     map[ID]int        // items that were found, by the last place in indexes, counted from 1
	found    []*state.HeldItem // of one group
}

// beginBurials starts to read what it takes to bury the items that die, together for all.
func (s *settlements) beginBurials(t *txOps, q *queueOps) error {
	if !q.ledger.Config.Begun() { // no operation can be the end of an item
		return nil
	}
	settings, err := q.ledger.Settings()
	if err != nil {
		return codec.UnlessCorrupt(err) // the operations that need them fail
	}
	for n := s.from; n < s.to; n++ {
		op := &t.ops[s.indexes[n]]
		if settings.MaxBytes > 0 && op.Kind != OpExtend {
			q.ledger.BeginSize(&op.Token.ID)
		}
		if op.Kind == OpAck || op.Kind != OpTerm && settings.MaxDeliver == 0 {
			continue
		}
		h, err := s.reads[n].Find(q.l, &op.Token)
		if err != nil && codec.UnlessCorrupt(err) != nil {
			return err
		}
		if h != nil && op.endsItem(h.Held, settings, t.now) {
			s.burials[n] = t.dead.Begin(&q.ledger, &h.ID, settings)
		}
	}
	return nil
}

// endsItem reports whether the operation ends not only a lease, but sends the item to its
// dead-letter queue.
func (op *Op) endsItem(h *codec.Held, s *Settings, now time.Time) bool {
	return op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted && s.Exhausted(h.Deliveries) && !h.Expired(now)
}

// settle runs the operations with tokens, and reads the items of a few at a time.
func (t *txOps) settle() error {
	for {
		var queues []*queueOps // with operations that are next
		left := t.returned.AtOnce()
		for _, q := range t.queues {
			if s := q.settlements; s != nil && left > 0 && s.to < len(s.indexes) {
				left -= s.span(t.ops, left)
				queues = append(queues, q)
			}
		}
		if len(queues) == 0 {
			return nil
		}
		if err := t.settleSome(queues); err != nil {
			return err
		}
	}
}

// settleSome runs the operations of the spans of some queues.
func (t *txOps) settleSome(queues []*queueOps) error {
	for _, q := range queues {
		if err := q.settlements.begin(t, q); err != nil {
			return err
		}
	}
	for _, q := range queues {
		q.settlements.readReady(t, q, q.settlements.from, q.settlements.to)
	}
	for _, q := range queues {
		if err := q.settlements.beginBurials(t, q); err != nil {
			return err
		}
	}
	for _, q := range queues {
		if err := t.settleQueue(q); err != nil {
			return err
		}
	}
	return nil
}

// settleOne moves an item whose token holds. p is nil unless begun for it. If there is an error,
// nothing has changed; it is ErrCorrupt or one of the store.
func (t *txOps) settleOne(q *queueOps, op *Op, h *state.HeldItem, p *due.Burial, result *Result) error {
	g := &q.ledger
	settings := &Settings{}
	if op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted {
		var err error
		if settings, err = g.Settings(); err != nil {
			return err
		}
	}
	if op.endsItem(h.Held, settings, t.now) {
		if p == nil {
			p = t.dead.Begin(g, &h.ID, settings)
		}
		return t.buryOne(g, op, h, p, result)
	}
	if op.Kind != OpAck && !t.fits(len(h.Value)) {
		result.Err = state.ErrNoRoom
		return nil
	}
	if op.Kind == OpAck {
		var err error
		if result.Freed, err = g.LimitsLeased(); err != nil {
			return err
		}
	}
	g.DetachLeased(h)
	switch op.Kind {
	case OpAck:
		g.Delete(h.Held)
		result.wait, result.ended = h.Wait, !h.Ready && h.State == codec.HeldLeased
	case OpNak:
		if h.Expired(t.now) {
			g.DeleteExpired(h.Held)
			return nil
		}
		h.Fence = codec.NextFence(h.Fence) // ends the token
		if op.Uncounted {
			h.Deliveries--
		}
		h.NoteReason(op.nakReason())
		delay := op.Delay
		if delay == Backoff {
			delay = settings.BackoffAfter(h.Deliveries)
		}
		if delay > 0 {
			h.State, h.Due = codec.HeldDelayed, t.now.Add(delay)
			g.Hold(h.Held)
			result.NextDue = codec.Micros(h.Due)
		} else {
			g.Requeue(h.Held)
		}
	case OpExtend:
		if op.Lease > 0 {
			h.Wait = op.Lease
		}
		h.State, h.Due = codec.HeldLeased, t.now.Add(h.Wait)
		g.Hold(h.Held)
		result.Lease = Lease{Token: op.Token, Until: codec.Micros(h.Due), Deliveries: h.Deliveries}
	}
	return nil
}

// nakReason is the reason that the operation gives an item to keep, "" for none.
func (op *Op) nakReason() string {
	if op.Kind == OpNak {
		return op.Reason
	}
	return ""
}

// buryOne moves an item whose token holds to its dead-letter queue.
func (t *txOps) buryOne(g *state.Ledger, op *Op, h *state.HeldItem, p *due.Burial, result *Result) error {
	h.NoteReason(op.nakReason())
	// Once there is no room, no large item is read only to find that it does not fit.
	if err := p.Load(h.Held, !t.full); err != nil {
		return err
	}
	if p.Large && t.full || !t.fits(p.Size()) {
		t.full = true
		result.Err = state.ErrNoRoom
		return nil
	}
	reason := ReasonMaxDeliver
	if op.Kind == OpTerm {
		reason = cmp.Or(codec.CleanText(op.Reason, MaxTermReason), ReasonTerminated)
	}
	var err error
	if result.Freed, err = g.LimitsLeased(); err != nil {
		return err
	}
	g.DetachLeased(h)
	g.Delete(h.Held)
	t.dead.Bury(p, h.Held, reason)
	return nil
}

// leaseLength returns the length of the lease that an OpLease asks for, 0 for an OpPop. The error
// is ErrCorrupt or one of the store.
func (t *txOps) leaseLength(q *queueOps, i int) (time.Duration, error) {
	op := &t.ops[i]
	if op.Kind != OpLease || op.Lease > 0 {
		return op.Lease, nil
	}
	if op.Lease != SettingsLease && op.Follows && i > 0 {
		before := i - 1
		for tied(t.ops, before) { // only acknowledgements can be, before a lease
			before--
		}
		if wait := t.results[before].wait; wait > 0 {
			return wait, nil
		}
	}
	settings, err := q.ledger.Settings()
	if err != nil {
		return 0, err
	}
	return settings.LeaseWait(), nil
}

// leaseItem leases an item, whose history is given as stored, to an operation for the given time.
// The error is ErrCorrupt; then nothing changes.
func (t *txOps) leaseItem(q *queueOps, i int, s *state.Stored, encoded []byte, wait time.Duration) error {
	past, err := codec.ParseHistory(&s.Item.ID, encoded)
	if err != nil {
		return err
	}
	op, result := &t.ops[i], &t.results[i]
	result.wait = wait
	h := &codec.Held{
		ID: s.Item.ID, State: codec.HeldLeased, Due: t.now.Add(wait), End: op.End, Value: s.Pair.Value,
		History: codec.History{
			Deliveries: past.Deliveries + 1, Fence: codec.NextFence(past.Fence), Wait: wait, Reason: past.Reason,
			Lasting: codec.LastingOf(&s.Item.Message),
		},
	}
	q.ledger.Detach(s)
	q.ledger.ClearExpiry(&h.ID, h.Expires)
	q.ledger.ClearHistory(&h.ID, encoded)
	q.ledger.Hold(h)
	q.pops.noteDue(codec.Micros(h.Due))
	result.Item = s.Item
	result.Lease = Lease{Token: Token{ID: h.ID, Fence: h.Fence, End: h.End}, Until: codec.Micros(h.Due), Deliveries: h.Deliveries}
	return nil
}
