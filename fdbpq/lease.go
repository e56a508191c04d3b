package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// leaseLength returns the length of the lease that an OpLease asks for, 0 for an OpPop. The error
// is ErrCorrupt or one of the store.
func (q *queuePops) leaseLength(i int) (time.Duration, error) {
	op := &q.ops[i]
	if op.Kind != OpLease || op.Lease > 0 {
		return op.Lease, nil
	}

	if op.Lease != SettingsLease && op.Follows && i > 0 {
		before := i - 1
		for tied(q.ops, before) { // only acknowledgements can be, before a lease
			before--
		}
		if length := q.results[before].wait; length > 0 {
			return length, nil
		}
	}

	settings, err := q.ledger.Settings()
	if err != nil {
		return 0, err
	}
	return settings.LeaseWait(), nil
}

// leaseItem leases an item, whose history is given as stored, for the given time. The error is
// ErrCorrupt; then nothing changes.
func (q *queuePops) leaseItem(i int, s *state.Stored, encoded []byte, length time.Duration) error {
	past, err := codec.ParseHistory(&s.Item.ID, encoded)
	if err != nil {
		return err
	}

	h := &codec.Record{
		ID: s.Item.ID, State: Leased, Due: q.now.Add(length), End: q.ops[i].End, Value: s.Pair.Value,
		History: codec.History{
			Deliveries: past.Deliveries + 1, Fence: codec.NextFence(past.Fence), Wait: length, Reason: past.Reason,
			Lasting: codec.LastingOf(&s.Item.Message),
		},
	}
	q.ledger.Detach(s)
	q.ledger.ClearExpiry(&h.ID, h.Expires)
	q.ledger.ClearHistory(&h.ID, encoded)
	q.ledger.Hold(h)

	until := codec.Micros(h.Due)
	q.nextDue = codec.Earliest(q.nextDue, until)
	result := &q.results[i]
	result.wait, result.Item = length, s.Item
	result.Lease = Lease{Token: Token{ID: h.ID, Fence: h.Fence, End: h.End}, Until: until, Deliveries: h.Deliveries}
	return nil
}
