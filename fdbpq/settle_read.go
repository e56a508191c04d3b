package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// nextSpan chooses the next operations, about most of them and whole groups, and returns how many.
func (q *queueSettlements) nextSpan(most int) (n int) {
	q.from = q.to
	for q.to < len(q.indexes) && q.to-q.from < most {
		q.to++
		for q.to < len(q.indexes) && tied(q.ops, q.indexes[q.to]) {
			q.to++
		}
	}
	return q.to - q.from
}

// beginReads starts to read the items that the tokens of the span name. Only a group of
// acknowledgements, which ends the span, may make that longer than AtOnce: it has no more values in
// memory at once either. The error is one of the store.
func (q *queueSettlements) beginReads() error {
	if q.reads == nil {
		q.reads, q.burials = make([]state.Lookup, len(q.indexes)), make([]*due.Burial, len(q.indexes))
	}

	atOnce := q.returned.AtOnce()
	for from := q.from; from < q.to; from += atOnce {
		to := min(from+atOnce, q.to)
		q.beginSome(from, to)
		if to == q.to {
			break
		}

		// Drop the values of these before the next are read.
		q.readReady(from, to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			if op.Kind != OpAck { // before the group, and moves the value
				continue
			}
			if err := q.reads[n].Shrink(q.l, &op.Token.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// opAt returns the operation with place n in indexes.
func (q *queueSettlements) opAt(n int) *Op { return &q.ops[q.indexes[n]] }

// readReady is Lookup.LookUpReady for some places.
func (q *queueSettlements) readReady(from, to int) {
	for n := from; n < to; n++ {
		q.reads[n].LookUpReady(q.tx, q.l, &q.opAt(n).Token.ID)
	}
}

// beginSome starts to read the items of some places, and the settings if they decide what becomes
// of one.
func (q *queueSettlements) beginSome(from, to int) {
	for n := from; n < to; n++ {
		op := q.opAt(n)
		q.reads[n] = q.lookUp(op)
		if op.Kind == OpTerm || op.Kind == OpAck || op.Kind == OpNak && !op.Uncounted {
			q.ledger.BeginSettings()
		}
	}
}

// lookUp starts to read the item of an operation where it is while it is held. An acknowledgement
// needs no value.
func (q *queueSettlements) lookUp(op *Op) state.Lookup {
	if op.Kind == OpAck {
		return q.ledger.LookUpLeased(&op.Token.ID)
	}
	return q.ledger.LookUpHeld(&op.Token.ID)
}

// beginBurials starts to read what it takes to bury the items of the span that die, together for
// all.
func (q *queueSettlements) beginBurials() error {
	if !q.ledger.SettingsBegun() { // no operation can be the end of an item
		return nil
	}
	settings, err := q.ledger.Settings()
	if err != nil {
		return codec.UnlessCorrupt(err) // the operations that need them fail
	}

	for n := q.from; n < q.to; n++ {
		op := q.opAt(n)
		if settings.MaxBytes > 0 && op.Kind != OpExtend {
			q.ledger.BeginSize(&op.Token.ID)
		}
		if op.Kind == OpAck || op.Kind != OpTerm && settings.MaxDeliver == 0 {
			continue
		}

		h, err := q.reads[n].Find(q.l, &op.Token)
		if err != nil && codec.UnlessCorrupt(err) != nil {
			return err
		}
		if h != nil && op.endsItem(h, settings, q.now) {
			q.burials[n] = q.dead.BeginBurial(&q.ledger, &h.ID, settings)
		}
	}
	return nil
}
