package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
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

const (
	// searchedAtOnce is how many groups a search reads at once, and maxAhead how many items of one.
	searchedAtOnce = 2048
	maxAhead       = 64
	// maxGapBytes is about how much of a transaction the conflicts with groups without items may take. If
	// they would take more, it conflicts with all groups.
	maxGapBytes = 1 << 20
)

// search finds the items of groups that may be served, in order, behind what a walk has passed over.
// What is between is of other groups, so it never reads that. It reads ahead without conflict, and
// conflicts with pushes of a group up to the next item that it has looked at.
type search struct {
	*side
	heads []*head // of groups that may be served, in the order of their items
	ahead int     // how many items of a group are read at once
}

// head is the next item of a group.
type head struct {
	hash codec.GroupHash
	rest kv.Range      // what is left of the group behind rows
	rows []kv.KeyValue // the next ones, behind this one, as far as they are read

	id    ID
	value kv.Future[[]byte] // nil unless the item is being read
	item  *state.Stored     // the same; it has its own key once it has been returned
	taken bool              // the one behind it is next
}

// beginSearch starts a search behind the key of an item in ("i"). It returns nil the first time if
// there are items that are in no index: the walk has to go on.
func (s *side) beginSearch(after []byte) (*search, error) {
	counters, total, pending := s.ledger.BeginGroupLoads()
	loads, _, err := s.limits.know(counters, state.MostGroupRows)
	if err != nil {
		return nil, err
	}
	ready, err := state.ReadCounter(total)
	if err != nil {
		return nil, err
	}

	found, indexed := &search{side: s}, int64(0)
	for _, load := range loads {
		if indexed += load.Ready; load.Ready > 0 {
			found.heads = append(found.heads, &head{hash: load.Hash, rest: s.l.GroupBeyond(load.Hash, s.end, after)})
		}
	}
	if indexed < ready+pending && !s.unindexed {
		return nil, nil
	}
	found.conflictWithOthers()
	return found, found.readHeads()
}

// conflictWithOthers makes the transaction conflict with whoever adds an item to a group that has none
// that is ready: it might be the next one. The index of groups has these between the others.
func (s *search) conflictWithOthers() {
	others := s.l.KindRange(codec.KindGroupReady)
	if len(s.heads)*(len(others.Begin)+len(others.End)) > maxGapBytes {
		s.tx.AddReadConflict(others)
		return
	}
	for _, h := range s.heads { // still in the order of their keys
		group := s.l.GroupItems(codec.KindGroupReady, h.hash)
		s.tx.AddReadConflict(kv.Range{Begin: others.Begin, End: group.Begin})
		others.Begin = group.End
	}
	s.tx.AddReadConflict(others)
}

// readHeads reads the first item of each group that may be served. Groups that may not now may not
// later in the transaction either.
func (s *search) readHeads() error {
	var open []*head
	for _, h := range s.heads {
		if may, err := s.limits.may(h.hash); err != nil {
			return err
		} else if may {
			open = append(open, h)
		}
	}
	s.ahead = min(s.want/max(len(open), 1)+1, maxAhead)

	s.heads = nil
	for some := range slices.Chunk(open, searchedAtOnce) {
		var rows []kv.Future[[]kv.KeyValue]
		for _, h := range some {
			rows = append(rows, s.beginRows(h))
		}
		for n, h := range some {
			if has, err := s.advance(h, rows[n]); err != nil {
				return err
			} else if has {
				s.heads = append(s.heads, h)
			}
		}
	}
	slices.SortFunc(s.heads, s.compare)
	if s.returned.Refused { // nothing more is returned
		return nil
	}
	for _, h := range s.heads[:min(len(s.heads), s.want, s.returned.AtOnce())] {
		s.beginItem(h)
	}
	return nil
}

// beginRows starts to read the next items of a group, unless some are there.
func (s *search) beginRows(h *head) kv.Future[[]kv.KeyValue] {
	if len(h.rows) > 0 {
		return kv.Ready(h.rows, nil)
	}
	return s.snapshot.GetRange(h.rest, kv.RangeOptions{Limit: s.ahead, Reverse: s.end == Back})
}

// advance goes on to the next item of a group, with what beginRows started to read, and reports whether
// there is one. The transaction conflicts with whoever changes the group up to there.
func (s *search) advance(h *head, rows kv.Future[[]kv.KeyValue]) (has bool, err error) {
	if h.rows, err = rows.Get(); err != nil {
		return false, err
	}
	if len(h.rows) == 0 {
		s.tx.AddReadConflict(h.rest)
		return false, nil
	}
	row := kv.SingleKey(h.rows[0].Key)
	if h.id, err = s.l.ParseGroupItem(row.Begin); err != nil {
		return false, err
	}

	h.rows, h.value, h.taken = h.rows[1:], nil, false
	if s.end == Front {
		s.tx.AddReadConflict(kv.Range{Begin: h.rest.Begin, End: row.End})
		h.rest.Begin = row.End
	} else {
		s.tx.AddReadConflict(kv.Range{Begin: row.Begin, End: h.rest.End})
		h.rest.End = row.Begin
	}
	return true, nil
}

// beginItem starts to read the next item of a group, without conflict.
func (s *search) beginItem(h *head) {
	h.value = s.snapshot.Get(s.l.ItemKey(&h.id))
	item := state.BeginItem(s.l, s.snapshot, &h.id, max(s.share/max(s.want, 1), 1))
	h.item = &item
}

// next returns the next item, as side.next does.
func (s *search) next() (*state.Stored, error) {
	for len(s.heads) > 0 {
		h := s.heads[0]
		if h.taken {
			if err := s.goOn(); err != nil {
				return nil, err
			}
			continue
		}

		key := s.l.ItemKey(&h.id)
		if s.ends.Met(s.end, key) {
			return nil, nil
		}
		if h.value == nil {
			s.beginItem(h)
		}
		if h.item.Pair.Key != nil {
			return h.item, nil
		}
		value, err := h.value.Get()
		if err != nil {
			return nil, err
		}
		s.tx.AddReadConflict(kv.SingleKey(key))
		if value != nil {
			h.item.SetOwn(s.l, value)
			return h.item, nil
		}
		if err := s.miss(h); err != nil { // another program has taken it
			return nil, err
		}
	}
	return nil, nil
}

// miss removes what an item has left, unless the search from the other end, which has read the same, did.
func (s *search) miss(h *head) error {
	row, err := s.snapshot.Get(s.l.GroupItemKey(codec.KindGroupReady, h.hash, &h.id)).Get()
	if row != nil {
		s.ledger.MissReady(&h.id)
	}
	h.taken = true
	return err
}

// goOn puts the first group where its next item is, if it may still be served.
func (s *search) goOn() error {
	h := s.heads[0]
	s.heads = s.heads[1:]
	if may, err := s.limits.may(h.hash); err != nil || !may {
		return err
	}
	has, err := s.advance(h, s.beginRows(h))
	if !has {
		return err
	}

	at, _ := slices.BinarySearchFunc(s.heads, h, s.compare)
	s.heads = slices.Insert(s.heads, at, h)
	if at < min(s.want, s.returned.AtOnce()) {
		s.beginItem(h)
	}
	return nil
}

// compare orders groups as their next items are served.
func (s *search) compare(a, b *head) int {
	if s.end == Back {
		a, b = b, a
	}
	return a.id.Compare(&b.id)
}
