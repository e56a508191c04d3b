package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueSettlements is the operations with tokens of one queue. They run before the pops, which can
// take the items that they give back. They are read and run in spans, one after the other, which
// bounds the values in memory.
type queueSettlements struct {
	part
	reads   []state.Lookup  // by place: an index into part.indexes
	burials []*due.Burial   // by place; nil unless the item will probably be buried
	found   []*codec.Record // of one chain

	keeps keeping

	from, to int        // the places of the span
	done     map[ID]int // items that were found, by the last place, counted from 1
}

// keeping is what the acknowledgements of a queue read of the jobs that they keep.
//
// Keeping a job never makes its acknowledgement fail. A value that the transaction has no room for
// is left out, and a damaged item is not kept.
type keeping struct {
	all   bool                    // the settings say that all jobs are kept
	asked bool                    // begun what is needed if they are likely to say so
	items map[int]*state.ItemRead // of the span, by place: what belongs to the items besides
	bytes int                     // that a long chain holds of its items
}

// by reports whether an operation is known to keep its job.
func (k *keeping) by(op *Op) bool {
	return op.Kind == OpAck && (k.all || codec.Keeps(&op.Token.ID))
}

// opAt returns the operation at a place.
func (q *queueSettlements) opAt(n int) *Op { return &q.ops[q.indexes[n]] }

// lookUp starts to read the item of an operation where it is while it is held. An acknowledgement
// needs no value, unless it is known to keep the job.
func (q *queueSettlements) lookUp(op *Op) state.Lookup {
	if op.Kind == OpAck {
		read := q.ledger.LookUpLeased(&op.Token.ID)
		if message, known := read.Known(); !known || message != nil || !q.keeps.by(op) {
			return read
		}
	}
	return q.ledger.LookUpHeld(&op.Token.ID)
}

// readReady is Lookup.LookUpReady for some places.
func (q *queueSettlements) readReady(from, to int) {
	for n := from; n < to; n++ {
		q.reads[n].LookUpReady(q.tx, q.l, &q.opAt(n).Token.ID)
	}
}
