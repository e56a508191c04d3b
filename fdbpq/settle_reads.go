package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// beginReads starts to read the items that the tokens of the span name. The error is one of the
// store.
func (q *queueSettlements) beginReads() error { return q.readInParts(q.beginRead, q.dropValues) }

// readInParts begins reads for all operations of the span. A span exceeds AtOnce only if its last
// chain does. Such a chain is read in parts, and drop frees what is too large of one part before
// the next is read. The error is one of the store.
func (q *queueSettlements) readInParts(
	begin func(*settlement), drop func([]settlement) error,
) error {
	var before []settlement
	for some := range slices.Chunk(q.span, q.returned.AtOnce()) {
		if err := drop(before); err != nil {
			return err
		}
		for i := range some {
			begin(&some[i])
		}
		before = some
	}
	return nil
}

// beginRead starts to read the item that a token names, and what else the operation depends on.
func (q *queueSettlements) beginRead(s *settlement) {
	s.read = q.lookUp(s)
	message, _ := s.read.Known()
	if codec.Linked(&s.Token.ID) && s.Kind != OpExtend && !q.keepsJob(s) && message == nil {
		q.ledger.BeginDelete(&s.Token.ID)
	}
	if s.Kind == OpTerm || s.Kind == OpAck || s.Kind == OpNak && !s.Uncounted {
		q.ledger.BeginSettings() // which decide what becomes of the item
	}
	q.beginOrder(s)
	q.beginNext(s)
}

// dropValues drops the values of items in a long chain. Acknowledgements need none, unless they
// keep their jobs. The error is one of the store.
func (q *queueSettlements) dropValues(some []settlement) error {
	q.readReady(some)
	for i := range some {
		s := &some[i]
		if s.Kind != OpAck { // it comes before the chain, and needs the value
			continue
		}

		held, err := q.holdsValue(s)
		if err == nil && !held {
			err = s.read.Shrink(q.l, &s.Token.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginBurials starts to read, in one round trip, what the burials of the span need, the attempts
// of jobs that are kept, and the sizes of the items if the queue counts bytes.
func (q *queueSettlements) beginBurials() error {
	if !q.ledger.SettingsBegun() { // no operation can be the end of an item
		return nil
	}
	settings, err := q.ledger.Settings()
	if err != nil {
		return codec.UnlessCorrupt(err) // the operations that need them fail
	}

	for i := range q.span {
		s := &q.span[i]
		if settings.MaxBytes > 0 && s.Kind != OpExtend && s.meta == nil {
			q.ledger.BeginDelete(&s.Token.ID)
		}
		endsWith := s.Kind == OpTerm || s.Kind != OpAck && settings.MaxDeliver > 0
		keepsTrail := s.meta != nil && settings.Trail > 0
		if !endsWith && !keepsTrail {
			continue
		}

		h, err := s.read.Find(q.l, &s.Token)
		if err != nil && codec.UnlessCorrupt(err) != nil {
			return err
		}
		if h != nil && keepsTrail {
			s.attempts = state.BeginAttempts(q.l, q.snapshot, h)
		}
		if h != nil && endsWith && s.endsItem(h, settings, q.now) {
			s.burial = q.outgoing.BeginBurial(&q.ledger, h, settings)
		}
	}
	return nil
}
