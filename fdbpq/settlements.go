package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// settlement is an operation with a token, and what it reads.
type settlement struct {
	*Op
	result *Result
	index  int  // into txn.ops
	tied   bool // to the settlement before it, so both are in one chain

	read   state.Lookup
	meta   *state.ItemRead // what else belongs to the item; nil unless its job is to be kept
	burial *due.Burial     // nil unless the item will probably be buried
	record *codec.Record   // of the item; nil unless the token holds

	attempts *state.AttemptsRead // of an item whose job is to be kept
	finished *codec.Finished     // of the job that is kept, nil without one

	// In a queue that keeps attempts:
	job    ID          // of the item
	pushed []trail.Job // its successors
}

// queueSettlements is the operations with tokens of one queue. They run before the pops, which can
// take the items that they give back. They are read and run in spans, one after the other, which
// bounds the values in memory.
type queueSettlements struct {
	familyOps
	span []settlement // that runs
	rest []settlement // of later spans

	chains int        // so far
	found  map[ID]int // items that were found, by the number of the last chain, counted from 1

	keeps keeping
}

// keeping is what the acknowledgements of a queue know of the jobs that they keep. A value that the
// transaction has no room for is left out, and a damaged item is not kept.
type keeping struct {
	all   bool // the settings say that all jobs are kept
	asked bool // begun what is needed if they are likely to say so
	bytes int  // that a long chain holds of its items
}

// keepsJob reports whether an operation is known to keep its job.
func (q *queueSettlements) keepsJob(s *settlement) bool {
	return s.Kind == OpAck && (q.keeps.all || codec.Keeps(&s.Token.ID))
}

// lookUp starts to read the item of an operation where it is while it is held. An acknowledgement
// needs no value, unless it is known to keep the job.
func (q *queueSettlements) lookUp(s *settlement) state.Lookup {
	if s.Kind == OpAck {
		read := q.ledger.LookUpLeased(&s.Token.ID)
		if message, known := read.Known(); !known || message != nil || !q.keepsJob(s) {
			return read
		}
	}
	return q.ledger.LookUpHeld(&s.Token.ID)
}

// readReady goes on to read items that are not held: a token may be of an item that is ready again,
// because its lease has run out.
func (q *queueSettlements) readReady(some []settlement) {
	for i := range some {
		s := &some[i]
		s.read.LookUpReady(q.tx, q.l, &s.Token.ID)
	}
}
