package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

const maxPassedBytes = 1 << 20

func (s *side) walk() *state.Cursor { return &s.ends.Walks[s.end] }

// find returns the next item that may be served, nil if there is none. It need not be complete: see
// ItemRead.ReadMeta. The error is ErrCorrupt, ErrMoreExpired or one of the store.
func (s *side) find() (*state.ItemRead, error) {
	for {
		item, err := s.next()
		if err != nil || item == nil {
			return nil, err
		}

		// Start to read what limits the groups of the items ahead, together, before waiting for
		// this one.
		hash := codec.GroupIn(&item.Item.ID)
		if !s.limits.isKnown(hash) {
			s.limits.beginGroups(s.walk().IDs())
		}
		if served, err := s.limits.mayServe(hash); err != nil {
			return nil, err
		} else if !served {
			if err := s.pass(item); err != nil {
				return nil, err
			}
			continue
		}

		if s.end == Front {
			s.served.Begin(&s.ledger, &item.Item.ID)
		}
		expired, err := item.Expired(s.tx, s.l, s.now, s.returned.Page())
		if err != nil || !expired {
			return item, err
		}

		// Usually it was removed before, together with all else that is due.
		if s.due.Behind() || s.due.Err != nil {
			return nil, s.moreExpired()
		}
		if err := s.removeExpired(item); err != nil {
			return nil, err
		}
	}
}

// next returns the next item, nil after the last or where the other side has taken the rest.
func (s *side) next() (*state.ItemRead, error) {
	if s.search != nil {
		return s.search.next()
	}
	return s.ends.Peek(s.end)
}

// pass skips an item whose group may not be served.
func (s *side) pass(item *state.ItemRead) (err error) {
	if s.search != nil { // the whole group is out
		s.search.heads = s.search.heads[1:]
		return nil
	}

	items, bytes := s.walk().Pass()
	if items < s.bounds.passed && bytes < maxPassedBytes ||
		s.walksOn && items < s.bounds.passedOn && !s.searchedTooLong() {
		return nil
	}
	s.search, err = s.beginSearch(item.Pair.Key)
	s.walksOn = s.search == nil
	return err
}

// dropTaken continues after an item that was taken.
func (s *side) dropTaken(item *state.ItemRead) {
	s.ends.NoteTaken(s.end, item.Pair.Key)
	if s.end == Front {
		s.served.Note(&item.Item.ID)
	}
	item.Release()
	s.drop()
	s.want--
}

// drop continues after the item that next has returned.
func (s *side) drop() {
	if s.search != nil {
		s.search.heads[0].taken = true
	} else {
		s.walk().Drop()
	}
}

// removeExpired removes an item that has expired although nothing in the time index says so. The
// error is one of the store.
func (s *side) removeExpired(item *state.ItemRead) error {
	past, err := s.history(&item.Item.ID)
	if err != nil {
		return err
	}
	h := state.RecordOf(&item.Item.ID, past)
	h.Value, h.Lasting = item.Pair.Value, codec.LastingOf(&item.Item.Message)
	s.ledger.DetachAnywhere(h)
	s.ledger.DeleteExpired(h)
	s.ends.NoteTaken(s.end, item.Pair.Key) // the walk from the other end may have read it
	s.drop()
	return nil
}

// check reads all of an item. The error says why the operation cannot have it, or is one of the
// store. An item that cannot be read stays, with ErrCorrupt, and so do the items after it, because
// serving them would break the order.
func (s *side) check(op *Op, item *state.ItemRead, bytesLeft *int) error {
	if item.Err != nil {
		return item.Err
	}
	if op.Kind == OpLease {
		if err := s.limits.checkLease(); err != nil {
			return err
		}
	}

	if err := s.complete(op, item, bytesLeft); err != nil {
		return err
	}
	size := len(item.Pair.Value)
	switch {
	case item.Err != nil:
		return item.Err
	case op.Kind == OpLease && size > codec.MaxHeldValue:
		return codec.ErrCannotHold
	case op.Kind == OpLease && !s.moving.fits(size), !s.returned.Admit(item.Item.Message.Size()):
		return state.ErrNoRoom
	}
	return nil
}

// complete reads all of an item, and subtracts its size from bytesLeft, the rest of MaxBytes. The
// error says why a pop or lease cannot have the item, or is one of the store.
func (s *side) complete(op *Op, item *state.ItemRead, bytesLeft *int) error {
	most := s.returned.Left()
	if op.MaxBytes > 0 {
		most = min(most, *bytesLeft)
	}
	if item.Cut && s.returned.Refused {
		return state.ErrNoRoom
	}

	// If the item is too large, this stops reading as soon as that is known.
	if err := item.ReadMeta(s.tx, s.l, most); err != nil {
		return err
	}

	size := item.Item.Message.Size()
	switch {
	case op.MaxBytes > 0 && (item.Cut && most == *bytesLeft || size > *bytesLeft):
		*bytesLeft = -1 // nor can the pops that share MaxBytes have anything
		return ErrMaxBytes
	case item.Cut:
		s.returned.Refused = true
		return state.ErrNoRoom
	case op.MaxBytes > 0:
		*bytesLeft -= size
	}
	return nil
}

// popItem removes an item, with its history as it is stored.
func (q *queuePops) popItem(i int, s *state.ItemRead, past []byte) {
	q.ledger.Pop(s)
	q.ledger.Forget(&s.Item.ID, past)
	taken := s.Taken(q.l, past)
	q.results[i].Item = *taken.Item
	q.popped = append(q.popped, taken)
}

// leaseLength returns the length of the lease that an OpLease asks for, 0 for an OpPop. The error
// is ErrCorrupt or one of the store.
func (q *queuePops) leaseLength(i int) (time.Duration, error) {
	op := &q.ops[i]
	if op.Kind != OpLease || op.Lease > 0 {
		return op.Lease, nil
	}

	if before := q.leaseBefore(i); op.Lease != SettingsLease && before != nil && before.wait > 0 {
		return before.wait, nil
	}

	settings, err := q.ledger.Settings()
	if err != nil {
		return 0, err
	}
	return settings.LeaseWait(), nil
}

// leaseBefore returns the result with the lease that an OpLease follows: the one before it, or the
// one that the first of a chain of acknowledgements ended. nil if it follows none.
func (q *queuePops) leaseBefore(i int) *Result {
	if !q.ops[i].Follows || i == 0 {
		return nil
	}

	before := i - 1
	for tied(q.ops, before) {
		before--
	}
	return &q.results[before]
}

// leaseItem leases an item, whose history is given as stored, for the given time. The error is
// ErrCorrupt; then nothing changes.
func (q *queuePops) leaseItem(
	i int, s *state.ItemRead, encoded []byte, length time.Duration,
) error {
	past, err := codec.ParseHistory(&s.Item.ID, encoded)
	if err != nil {
		return err
	}

	h := &codec.Record{
		ID: s.Item.ID, State: Leased, End: q.ops[i].End,
		Due: q.now.Add(length), Value: s.Pair.Value, Parts: s.Parts(),
		History: codec.History{
			Deliveries: past.Deliveries + 1,
			Fence:      codec.NextFence(past.Fence), // no earlier token holds
			Wait:       length,
			Reason:     past.Reason,
			Lasting:    codec.LastingOf(&s.Item.Message),
		},
	}

	holder := q.ops[i].Holder
	if before := q.leaseBefore(i); holder == "" && before != nil {
		holder = before.holder
	}
	h.SetHolder(holder, q.now)
	keeps := codec.Keeps(&h.ID) || q.limits.set.Keep > 0
	if keeps || q.limits.set.Trail > 0 {
		h.Since = q.now
	}
	if keeps || codec.Linked(&h.ID) { // so that the end need not read it
		h.Message = &s.Item.Message
	}

	q.ledger.Detach(s.Pair.Key, &h.ID)
	q.ledger.ClearExpiry(&h.ID, h.Expires)
	q.ledger.ClearHistory(&h.ID, encoded)
	q.ledger.Hold(h)

	until := codec.Micros(h.Due)
	q.nextDue = codec.Earliest(q.nextDue, until)
	result := &q.results[i]
	result.wait, result.holder, result.Item = length, holder, s.Item
	result.MaxDeliver = q.limits.set.MaxDeliver
	token := Token{ID: h.ID, Fence: h.Fence, End: h.End}
	result.Lease = Lease{Token: token, Until: until, Deliveries: h.Deliveries}
	return nil
}
