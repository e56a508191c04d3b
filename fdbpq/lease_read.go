package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// span chooses the next operations, about most of them and whole groups, and returns how many.
func (s *settlements) span(ops []Op, most int) (n int) {
	s.from = s.to
	for s.to < len(s.indexes) && s.to-s.from < most {
		s.to++
		for s.to < len(s.indexes) && tied(ops, s.indexes[s.to]) {
			s.to++
		}
	}
	return s.to - s.from
}

// begin starts to read the items that the tokens of the span name. Only a group of acknowledgements, which ends
// the span, may make that longer than AtOnce: it has no more values in memory at once either. The error is one of the store.
func (s *settlements) begin(t *txOps, q *queueOps) error {
	if s.reads == nil {
		s.reads, s.burials = make([]state.HeldRead, len(s.indexes)), make([]*due.Burial, len(s.indexes))
	}
	atOnce := t.returned.AtOnce()
	for from := s.from; from < s.to; from += atOnce {
		to := min(from+atOnce, s.to)
		s.beginSome(t, q, from, to)
		if to == s.to {
			break
		}
		s.readReady(t, q, from, to)
		for n := from; n < to; n++ {
			op := &t.ops[s.indexes[n]]
			if op.Kind != OpAck { // before the group, and moves the value
				continue
			}
			if err := s.reads[n].Shrink(q.l, &op.Token.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadReady is HeldRead.ReadReady for some places.
func (s *settlements) readReady(t *txOps, q *queueOps, from, to int) {
	for n := from; n < to; n++ {
		s.reads[n].ReadReady(t.tx, q.l, &t.ops[s.indexes[n]].Token.ID)
	}
}

func (s *settlements) beginSome(t *txOps, q *queueOps, from, to int) {
	for n := from; n < to; n++ {
		i := s.indexes[n]
		s.reads[n] = q.ledger.ReadHeld(&t.ops[i].Token.ID)
		if op := &t.ops[i]; op.Kind == OpTerm || op.Kind == OpAck || op.Kind == OpNak && !op.Uncounted {
			q.ledger.BeginSettings()
		}
	}
}
