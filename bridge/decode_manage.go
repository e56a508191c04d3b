package bridge

import (
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeItem reads the payload of an operation on one item.
func decodeItem(m *nats.Msg, r *subjects.Request, op *fdbpq.Op) error {
	o, err := subjects.ParseItemOptions(r.Verb, m.Data)
	if err != nil {
		return err
	}
	if op.ID, err = fdbpq.ParseID(o.ID); err != nil {
		return err
	}
	op.Priority = o.Priority
	if o.Max {
		op.End = fdbpq.Back
	}
	return nil
}

// states has the state that each name stands for.
var states = map[subjects.State]fdbpq.ItemState{
	"":                    fdbpq.AnyState,
	subjects.StateReady:   fdbpq.Ready,
	subjects.StateDelayed: fdbpq.Delayed,
	subjects.StateLeased:  fdbpq.Leased,
}

// decodePurge reads the payload of a purge.
func decodePurge(m *nats.Msg, op *fdbpq.Op) error {
	state, err := subjects.ParsePurge(m.Data)
	op.State = states[state]
	return err
}
