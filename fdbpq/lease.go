package fdbpq

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// Bounds of the length of a lease and of a delay.
const (
	MinLease = settings.MinLease
	MaxLease = settings.MaxLease
	MaxDelay = settings.MaxDelay
	// DefaultLease is for a lease whose length nothing says, not even Settings.AckWait.
	DefaultLease = settings.DefaultLease
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
	reads   []heldRead
	burials []*burial // by place in indexes; nil unless the item seems to die

	from, to int         // places in indexes: these are being read
	done     map[ID]int  // items that were found, by the last place in indexes, counted from 1
	found    []*heldItem // of one group
}

// beginBurials starts to read what it takes to bury the items that die, together for all.
func (s *settlements) beginBurials(t *txOps, q *queueOps) error {
	if !q.ledger.config.begun() { // no operation can be the end of an item
		return nil
	}
	settings, err := q.ledger.settings()
	if err != nil {
		return unlessCorrupt(err) // the operations that need them fail
	}
	for n := s.from; n < s.to; n++ {
		op := &t.ops[s.indexes[n]]
		if settings.MaxBytes > 0 && op.Kind != OpExtend {
			q.ledger.beginSize(&op.Token.ID)
		}
		if op.Kind == OpAck || op.Kind != OpTerm && settings.MaxDeliver == 0 {
			continue
		}
		h, err := s.reads[n].find(q.l, &op.Token)
		if err != nil && unlessCorrupt(err) != nil {
			return err
		}
		if h != nil && op.endsItem(h.held, settings, t.now) {
			s.burials[n] = t.dead.begin(&q.ledger, &h.id, settings)
		}
	}
	return nil
}

// unlessCorrupt returns nil for ErrCorrupt, and any other error.
func unlessCorrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

// endsItem reports whether the operation ends not only a lease, but sends the item to its
// dead-letter queue.
func (op *Op) endsItem(h *held, s *Settings, now time.Time) bool {
	return op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted && s.Exhausted(h.deliveries) && !h.expired(now)
}

// settle runs the operations with tokens, and reads the items of a few at a time.
func (t *txOps) settle() error {
	for {
		var queues []*queueOps // with operations that are next
		left := t.returned.atOnce()
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

// heldItem is a held item, or one that came back to the queue and that nobody else got.
type heldItem struct {
	*held
	ready bool // it is in ("i")
}

// settleOne moves an item whose token holds. p is nil unless begun for it. If there is an error,
// nothing has changed; it is ErrCorrupt or one of the store.
func (t *txOps) settleOne(q *queueOps, op *Op, h *heldItem, p *burial, result *Result) error {
	g := &q.ledger
	settings := &Settings{}
	if op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted {
		var err error
		if settings, err = g.settings(); err != nil {
			return err
		}
	}
	if op.endsItem(h.held, settings, t.now) {
		if p == nil {
			p = t.dead.begin(g, &h.id, settings)
		}
		return t.buryOne(g, op, h, p, result)
	}
	if op.Kind != OpAck && !t.fits(len(h.value)) {
		result.Err = errNoRoom
		return nil
	}
	if op.Kind == OpAck {
		if err := g.noteFreed(result); err != nil {
			return err
		}
	}
	g.claim(h)
	switch op.Kind {
	case OpAck:
		g.discard(h.held)
		result.wait, result.ended = h.wait, !h.ready && h.state == leased
	case OpNak:
		if h.expired(t.now) {
			g.expireLent(h.held)
			return nil
		}
		h.fence = nextFence(h.fence) // ends the token
		if op.Uncounted {
			h.deliveries--
		}
		h.noteReason(op)
		delay := op.Delay
		if delay == Backoff {
			delay = settings.BackoffAfter(h.deliveries)
		}
		if delay > 0 {
			h.state, h.due = delayed, t.now.Add(delay)
			g.hold(h.held)
			result.NextDue = micros(h.due)
		} else {
			g.putBack(h.held)
		}
	case OpExtend:
		if op.Lease > 0 {
			h.wait = op.Lease
		}
		h.state, h.due = leased, t.now.Add(h.wait)
		g.hold(h.held)
		result.Lease = Lease{Token: op.Token, Until: micros(h.due), Deliveries: h.deliveries}
	}
	return nil
}

// noteReason keeps the reason of a negative acknowledgement that gives one, unless the value of
// another program leaves no room for it.
func (h *held) noteReason(op *Op) {
	if op.Kind == OpNak && op.Reason != "" && len(h.value) <= maxHeldValue-MaxNakReason {
		h.reason = cleanText(op.Reason, MaxNakReason)
	}
}

// buryOne moves an item whose token holds to its dead-letter queue.
func (t *txOps) buryOne(g *ledger, op *Op, h *heldItem, p *burial, result *Result) error {
	h.noteReason(op)
	// Once there is no room, no large item is read only to find that it does not fit.
	if err := p.load(h.held, !t.full); err != nil {
		return err
	}
	if p.large && t.full || !t.fits(p.size()) {
		t.full = true
		result.Err = errNoRoom
		return nil
	}
	reason := ReasonMaxDeliver
	if op.Kind == OpTerm {
		reason = cmp.Or(cleanText(op.Reason, MaxTermReason), ReasonTerminated)
	}
	if err := g.noteFreed(result); err != nil {
		return err
	}
	g.claim(h)
	g.discard(h.held)
	t.dead.bury(p, h.held, reason)
	return nil
}

// micros is t as it is stored.
func micros(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

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
	settings, err := q.ledger.settings()
	if err != nil {
		return 0, err
	}
	return settings.LeaseWait(), nil
}

// leaseItem leases an item, whose history is given as stored, to an operation for the given time.
// The error is ErrCorrupt; then nothing changes.
func (t *txOps) leaseItem(q *queueOps, i int, s *stored, encoded []byte, wait time.Duration) error {
	past, err := parseHistory(&s.item.ID, encoded)
	if err != nil {
		return err
	}
	op, result := &t.ops[i], &t.results[i]
	result.wait = wait
	h := &held{
		id: s.item.ID, state: leased, deliveries: past.deliveries + 1, fence: nextFence(past.fence),
		due: t.now.Add(wait), wait: wait, end: op.End, reason: past.reason,
		expires: s.item.Expires, unique: s.item.Unique, value: s.pair.Value,
	}
	q.ledger.lend(s)
	q.ledger.clearExpiry(&h.id, h.expires)
	q.ledger.forget(&h.id, encoded)
	q.ledger.hold(h)
	q.pops.noteDue(micros(h.due))
	result.Item = s.item
	result.Lease = Lease{Token: Token{ID: h.id, Fence: h.fence, End: h.end}, Until: micros(h.due), Deliveries: h.deliveries}
	return nil
}

// checkLease returns an error if the duration cannot be the length of a lease. 0 means the
// default.
func checkLease(d time.Duration) error {
	if err := settings.CheckBounds(d, MinLease, MaxLease); err != nil {
		return fmt.Errorf("%w: a lease of %w", ErrOp, err)
	}
	return nil
}
