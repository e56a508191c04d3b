package fdbpq

import (
	"cmp"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueSettlements is the operations with tokens of one queue. Spans of them are read and run after
// each other. They run before the pops, so that what they end is settled, and what they give back
// can be popped.
type queueSettlements struct {
	*queueTxn
	indexes []int // into txn.ops
	reads   []state.Lookup
	burials []*due.Burial // by place in indexes; nil unless the item seems to die

	from, to int             // places in indexes: the span
	done     map[ID]int      // items that were found, by the last place in indexes, counted from 1
	found    []*codec.Record // of one group
}

// settlements is those of all queues.
type settlements []*queueSettlements

// run reads and settles the items of a few operations at a time.
func (s settlements) run() error {
	for len(s) > 0 {
		var queues settlements // with operations that are next
		left := s[0].returned.AtOnce()
		for _, q := range s {
			if left > 0 && q.to < len(q.indexes) {
				left -= q.nextSpan(left)
				queues = append(queues, q)
			}
		}
		if len(queues) == 0 {
			return nil
		}
		if err := queues.runSpans(); err != nil {
			return err
		}
	}
	return nil
}

// runSpans runs the operations of the spans.
func (s settlements) runSpans() error {
	if err := each(s, (*queueSettlements).beginReads); err != nil {
		return err
	}
	// A token may be of an item that is ready again, because its lease has run out.
	for _, q := range s {
		q.readReady(q.from, q.to)
	}
	if err := each(s, (*queueSettlements).beginBurials); err != nil {
		return err
	}
	return each(s, (*queueSettlements).runSpan)
}

// endsItem reports whether the operation ends not only a lease, but sends the item to its
// dead-letter queue.
func (op *Op) endsItem(h *codec.Record, s *Settings, now time.Time) bool {
	return op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted && s.Exhausted(h.Deliveries) && !h.Expired(now)
}

// settle moves an item whose token holds. p is nil unless begun for it. If there is an error,
// nothing has changed; it is ErrCorrupt or one of the store.
func (q *queueSettlements) settle(i int, h *codec.Record, p *due.Burial) error {
	op, result := &q.ops[i], &q.results[i]
	settings := &Settings{}
	if op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted {
		var err error
		if settings, err = q.ledger.Settings(); err != nil {
			return err
		}
	}
	if op.endsItem(h, settings, q.now) {
		if p == nil {
			p = q.dead.BeginBurial(&q.ledger, &h.ID, settings)
		}
		return q.bury(i, h, p)
	}

	if op.Kind == OpAck {
		return q.ack(h, result)
	}
	if !q.moving.fits(len(h.Value)) {
		result.Err = state.ErrNoRoom
		return nil
	}
	q.ledger.DetachAnywhere(h)
	if op.Kind == OpNak {
		result.NextDue = q.giveBack(op, h, settings)
	} else {
		q.extend(op, h, result)
	}
	return nil
}

// ack removes an item.
func (q *queueSettlements) ack(h *codec.Record, result *Result) (err error) {
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h)
	result.wait, result.ended = h.Wait, h.State == Leased
	return nil
}

// giveBack returns a detached item to its queue, at once or after the delay, unless it has expired.
// The time is when the delay is over, zero without one.
func (q *queueTxn) giveBack(op *Op, h *codec.Record, settings *Settings) (nextDue time.Time) {
	if h.Expired(q.now) {
		q.ledger.DeleteExpired(h)
		return time.Time{}
	}

	h.Fence = codec.NextFence(h.Fence) // ends the token
	if op.Uncounted || op.Kind == OpRelease {
		h.Deliveries--
	}
	h.NoteReason(op.nakReason())

	delay := op.Delay
	if delay == Backoff {
		delay = settings.BackoffAfter(h.Deliveries)
	}
	if delay <= 0 {
		q.ledger.Requeue(h)
		return time.Time{}
	}
	h.State, h.Due = Delayed, q.now.Add(delay)
	q.ledger.Hold(h)
	return codec.Micros(h.Due)
}

// extend leases a detached item to its holder for a further time.
func (q *queueSettlements) extend(op *Op, h *codec.Record, result *Result) {
	if op.Lease > 0 {
		h.Wait = op.Lease
	}
	if hash := codec.GroupIn(&h.ID); h.State != Leased && hash > codec.NoGroup {
		q.ledger.ConflictLeasing(hash, false) // whoever counts the leases of the group
	}
	h.State, h.Due = Leased, q.now.Add(h.Wait)
	q.ledger.Hold(h)
	result.Lease = Lease{Token: op.Token, Until: codec.Micros(h.Due), Deliveries: h.Deliveries}
}

// nakReason is the reason that the operation gives an item to keep, "" for none.
func (op *Op) nakReason() string {
	if op.Kind == OpNak {
		return op.Reason
	}
	return ""
}

// bury moves an item whose token holds to its dead-letter queue.
func (q *queueSettlements) bury(i int, h *codec.Record, p *due.Burial) error {
	op, result := &q.ops[i], &q.results[i]
	h.NoteReason(op.nakReason())
	// Once there is no room, no large item is read only to find that it does not fit.
	if err := p.Load(h, !q.moving.full); err != nil {
		return err
	}
	if p.Large && q.moving.full || !q.moving.fits(p.Size()) {
		q.moving.full = true
		result.Err = state.ErrNoRoom
		return nil
	}

	reason := ReasonMaxDeliver
	if op.Kind == OpTerm {
		reason = cmp.Or(codec.CleanText(op.Reason, MaxTermReason), ReasonTerminated)
	}
	var err error
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h)
	if op.Uncounted {
		h.Deliveries--
	}
	q.dead.Bury(p, h, reason)
	return nil
}
