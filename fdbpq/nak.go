package fdbpq

import (
	"cmp"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// requeue returns a detached item to its queue, at once or after the delay, unless it has expired.
// The time is when the delay is over, zero without one.
func (q *queueTxn) requeue(op *Op, h *codec.Record, settings *Settings) (nextDue time.Time) {
	if h.Expired(q.now) {
		q.ledger.DeleteExpired(h)
		return time.Time{}
	}

	h.Fence = codec.NextFence(h.Fence) // ends the token
	switch {
	case op.Uncounted || op.Kind == OpRelease:
		q.ledger.ForgetAttempt(h)
		h.Deliveries--
	case op.Kind == OpNak:
		q.ledger.NoteAttempt(&h.ID, h.Attempt(trail.Nak, q.now, op.Reason))
	}
	if op.Kind == OpNak {
		h.NoteReason(op.Reason)
	}

	delay := op.Delay
	if delay == Backoff {
		delay = settings.RetryAfter(h.Deliveries, op.RetryDelay)
	}
	if delay <= 0 {
		q.ledger.Requeue(h)
		return time.Time{}
	}
	h.State, h.Due = Delayed, q.now.Add(delay)
	q.ledger.Hold(h)
	return codec.Micros(h.Due)
}

// endsItem reports whether the operation not only ends a lease, but sends the item to its
// dead-letter queue.
func (op *Op) endsItem(h *codec.Record, s *Settings, now time.Time) bool {
	last := !op.Uncounted && s.Exhausted(h.Deliveries) // of the deliveries that the settings allow
	return op.Kind == OpTerm || op.Kind == OpNak && last && !h.Expired(now)
}

// bury moves an item whose token holds to its dead-letter queue.
func (q *queueSettlements) bury(s *settlement, set *Settings) error {
	h, b := s.record, s.burial
	if b == nil {
		b = q.outgoing.BeginBurial(&q.ledger, h, set)
	}
	if s.Kind == OpNak {
		h.NoteReason(s.Reason)
	}

	// Once there is no room, no large item is read only to find that it does not fit.
	if err := b.Load(h, !q.moving.full); err != nil {
		return err
	}
	size := b.Size() + q.ledger.ForgetSize(h)
	if b.Large && q.moving.full || !q.moving.fits(size) {
		q.moving.full = true
		return state.ErrNoRoom
	}

	reason, last := ReasonMaxDeliver, h.Attempt(trail.Nak, q.now, s.Reason)
	if s.Kind == OpTerm {
		reason = cmp.Or(settings.CleanText(s.Reason, MaxTermReason), ReasonTerminated)
		last.How = trail.Term
	}
	var err error
	if s.result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}

	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h, codec.MemberDead)
	attempt := &last
	if s.Uncounted {
		h.Deliveries--
		attempt = nil
	}
	q.outgoing.Bury(b, h, reason, attempt)
	return nil
}
