package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// beginReads starts to read the items that the tokens of the span name. The error is one of the
// store.
func (q *queueSettlements) beginReads() error {
	if q.reads == nil {
		q.reads = make([]state.Lookup, len(q.indexes))
		q.burials = make([]*due.Burial, len(q.indexes))
	}

	// A span exceeds AtOnce only if its last chain does. Such a chain is read in parts, and the
	// values of one part are dropped before the next is read.
	atOnce := q.returned.AtOnce()
	for from := q.from; from < q.to; from += atOnce {
		to := min(from+atOnce, q.to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			q.reads[n] = q.lookUp(op)
			if codec.Moved(&op.Token.ID) && op.Kind != OpExtend && !q.keeps.by(op) {
				q.ledger.BeginDelete(&op.Token.ID)
			}
			if op.Kind == OpTerm || op.Kind == OpAck || op.Kind == OpNak && !op.Uncounted {
				q.ledger.BeginSettings() // which decide what becomes of the item
			}
			q.beginOrder(op)
			q.beginNext(op)
		}
		if to == q.to {
			break
		}

		// Acknowledgements need no values, unless they keep their jobs.
		q.readReady(from, to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			if op.Kind != OpAck { // it comes before the chain, and needs the value
				continue
			}
			if held, err := q.holdsValue(n); held || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			if err := q.reads[n].Shrink(q.l, &op.Token.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginBurials starts to read, in one round trip, what the burials of the span need, and the sizes
// of the items if the queue counts bytes.
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
		if settings.MaxBytes > 0 && op.Kind != OpExtend && q.keeps.items[n] == nil {
			q.ledger.BeginDelete(&op.Token.ID)
		}
		if op.Kind == OpAck || op.Kind != OpTerm && settings.MaxDeliver == 0 {
			continue
		}

		h, err := q.reads[n].Find(q.l, &op.Token)
		if err != nil && codec.UnlessCorrupt(err) != nil {
			return err
		}
		if h != nil && op.endsItem(h, settings, q.now) {
			q.burials[n] = q.outgoing.BeginBurial(&q.ledger, &h.ID, settings)
		}
	}
	return nil
}
