package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// A walk that passes over items of groups that are at a limit ends after maxPassed of them, or
// maxPassedBytes. Then a search takes the first item of each group that may be served. Where some
// items are in no index of a group, a walk goes on for maxPassedUnindexed.
const (
	maxPassed          = 64
	maxPassedBytes     = 1 << 20
	maxPassedUnindexed = 20_000
)

// side is the items of a queue from one of its ends, on which pops take them: in their order or, once
// a search has begun, those of groups that may be served.
type side struct {
	*queuePops
	end       End
	want      int     // how many items are still wanted
	search    *search // nil while the walk goes on
	unindexed bool    // the walk goes on because of items that are in no index
}

func (s *side) walk() *state.Cursor { return &s.ends.Walks[s.end] }

// find returns the next item that may be served, in full or as far as it is read at once, nil if there is
// none. The error is ErrCorrupt, ErrMoreExpired or one of the store.
func (s *side) find() (*state.Stored, error) {
	for {
		item, err := s.next()
		if err != nil || item == nil {
			return nil, err
		}

		hash := codec.GroupIn(&item.Item.ID)
		if !s.limits.knows(hash) {
			s.limits.begin(s.walk().Ahead())
		}
		if may, err := s.limits.may(hash); err != nil {
			return nil, err
		} else if !may {
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
		if s.due.Behind() || s.due.Err != nil {
			return nil, s.moreExpired()
		}
		s.removeExpired(item)
	}
}

// next returns the next item, nil after the last or where the other side has taken the rest.
func (s *side) next() (*state.Stored, error) {
	if s.search != nil {
		return s.search.next()
	}
	return s.ends.Peek(s.end)
}

// pass goes on behind an item whose group may not be served. A search drops the whole group.
func (s *side) pass(item *state.Stored) (err error) {
	if s.search != nil {
		s.search.heads = s.search.heads[1:]
		return nil
	}

	items, bytes := s.walk().Pass()
	if items < s.passes && bytes < maxPassedBytes || s.unindexed && items < maxPassedUnindexed {
		return nil
	}
	s.search, err = s.beginSearch(item.Pair.Key)
	s.unindexed = s.search == nil
	return err
}

// take goes on behind an item that was taken.
func (s *side) take(item *state.Stored) {
	s.ends.NoteTaken(s.end, item.Pair.Key)
	if s.end == Front {
		s.served.Note(&item.Item.ID)
	}
	item.Release()
	s.drop()
	s.want--
}

// drop goes on behind the item that next has returned.
func (s *side) drop() {
	if s.search != nil {
		s.search.heads[0].taken = true
	} else {
		s.walk().Drop()
	}
}

// removeExpired removes an item that has expired although nothing in the time index says so.
func (s *side) removeExpired(item *state.Stored) {
	h := &codec.Record{ID: item.Item.ID, State: Ready, Value: item.Pair.Value}
	h.Lasting = codec.LastingOf(&item.Item.Message)
	s.ledger.DetachAnywhere(h)
	s.ledger.DeleteExpired(h)
	s.ends.NoteTaken(s.end, item.Pair.Key) // the other end may have read it
	s.drop()
}

// check reads all of an item. It returns why the operation cannot have it, nil if it can. The error
// is one of the store, or ErrCorrupt: an item that cannot be read stays, and so do those behind it,
// because serving them would break the order.
func (s *side) check(op *Op, item *state.Stored, room *int) (refused, err error) {
	if item.Err != nil {
		return nil, item.Err
	}
	if op.Kind == OpLease {
		if refused, err := s.limits.checkLease(); refused != nil || err != nil {
			return refused, err
		}
	}

	if refused, err := s.complete(op, item, room); refused != nil || err != nil {
		return refused, err
	}
	switch size := len(item.Pair.Value); {
	case item.Err != nil:
		return nil, item.Err
	case op.Kind == OpLease && size > codec.MaxHeldValue:
		return codec.ErrCannotHold, nil
	case op.Kind == OpLease && !s.moving.fits(size) || !s.returned.Admit(item.Item.Message.Size()):
		return state.ErrNoRoom, nil
	}
	return nil, nil
}

// complete reads all of an item, and takes it from room, what is left of MaxBytes. It returns why a
// pop or lease cannot have it, nil if it can; of an item that is too large it reads no more than it
// takes to know that.
func (s *side) complete(op *Op, item *state.Stored, room *int) (refused, err error) {
	most := s.returned.Left()
	if op.MaxBytes > 0 {
		most = min(most, *room)
	}
	if item.Cut && s.returned.Refused {
		return state.ErrNoRoom, nil
	}
	if err := item.ReadRest(s.tx, s.l, most); err != nil {
		return nil, err
	}

	switch size := item.Item.Message.Size(); {
	case op.MaxBytes > 0 && (item.Cut && most == *room || size > *room):
		*room = -1
		return ErrMaxBytes, nil
	case item.Cut:
		s.returned.Refused = true
		return state.ErrNoRoom, nil
	case op.MaxBytes > 0:
		*room -= size
	}
	return nil, nil
}
