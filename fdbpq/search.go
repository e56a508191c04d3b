package fdbpq

import (
	"cmp"
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
	// searchedAtOnce is how many groups a search reads at once, and maxAhead how many items of one.
	searchedAtOnce = 2048
	maxAhead       = 64
	// maxGapBytes is about how much of a transaction the conflicts with groups without items may take. If
	// they would take more, it conflicts with all groups.
	maxGapBytes = 1 << 20
)

// nextOf returns the next item from an end that may be served, nil if there is none. Its rest is not
// read. The error is ErrCorrupt or one of the store.
func (q *queuePops) nextOf(end End) (*state.Stored, error) {
	if s := q.searches[end]; s != nil {
		return s.next()
	}

	for {
		s, err := q.ends.Next(end)
		if err != nil || s == nil || q.groups.refused == nil {
			return s, err
		}
		hash := codec.GroupIn(&s.Item.ID)
		if !q.groups.knows(hash) {
			q.groups.beginGroup(hash)
			q.groups.begin(q.ends.Ahead(end))
		}
		if may, err := q.groups.may(hash); err != nil || may {
			return s, err
		}

		q.groups.passed = true
		items, bytes := q.ends.Pass(end, s)
		if items < q.passes && bytes < maxPassedBytes || q.unindexed[end] && items < maxPassedUnindexed {
			continue
		}
		if searched, err := q.beginSearch(end, s.Pair.Key); err != nil {
			return nil, err
		} else if searched != nil {
			q.searches[end] = searched
			return searched.next()
		}
		q.unindexed[end] = true
	}
}

// unread has nextOf return an item again.
func (q *queuePops) unread(end End, s *state.Stored) {
	if search := q.searches[end]; search != nil {
		search.heads[0].taken = false
		search.left++
		return
	}
	q.ends.Unread(end, s)
}

// search finds the items of groups that may be served, in order, behind what a walk has passed over.
// What is between is of other groups, so it never reads that. It reads ahead without conflict, and
// conflicts with pushes of a group up to the next item that it has looked at.
type search struct {
	*queuePops
	end   End
	heads []*head // in the order of their items
	ahead int     // how many of a group are read at once
	left  int     // how many items are still wanted
}

// head is the next item of a group.
type head struct {
	hash codec.GroupHash
	rest kv.Range                 // what is left of the group
	read kv.Future[[]kv.KeyValue] // the next ones
	rows []kv.KeyValue            // of these: those behind the next one

	id    ID                // of the next one
	value kv.Future[[]byte] // of it; nil unless that is being read
	item  *state.Stored     // the same; it has its own key once it has been returned
	taken bool              // it has been returned: the one behind it is next
}

// beginSearch starts a search behind the key of an item in ("i"). It returns nil the first time if
// there are items that are in no index: the walk has to go on.
func (q *queuePops) beginSearch(end End, after []byte) (*search, error) {
	counters, total, pending := q.ledger.BeginGroupLoads()
	loads, _, err := q.groups.know(counters, state.MostGroupRows)
	if err != nil {
		return nil, err
	}
	ready, err := state.ReadCounter(total)
	if err != nil {
		return nil, err
	}

	s, indexed := &search{queuePops: q, end: end}, int64(0)
	for _, load := range loads {
		if indexed += load.Ready; load.Ready > 0 {
			s.heads = append(s.heads, &head{hash: load.Hash, rest: q.l.GroupBeyond(load.Hash, end, after)})
		}
	}
	if indexed < ready+pending && !q.unindexed[end] {
		return nil, nil
	}
	s.left = q.wants[end]
	s.conflictWithOthers()
	return s, s.readHeads()
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
func (s *search) readHeads() (err error) {
	s.heads = slices.DeleteFunc(s.heads, func(h *head) bool {
		may, mayErr := s.groups.may(h.hash)
		err = cmp.Or(err, mayErr)
		return !may
	})
	if err != nil {
		return err
	}

	s.ahead = min(s.left/max(len(s.heads), 1)+1, maxAhead)
	var found []*head
	for some := range slices.Chunk(s.heads, searchedAtOnce) {
		for _, h := range some {
			s.advance(h)
		}
		for _, h := range some {
			if has, err := s.arrive(h); err != nil {
				return err
			} else if has {
				found = append(found, h)
			}
		}
	}
	s.heads = found
	slices.SortFunc(s.heads, s.compare)
	if s.returned.Refused { // nothing more is returned
		return nil
	}
	for _, h := range s.heads[:min(len(s.heads), s.left, s.together)] {
		s.beginItem(h)
	}
	return nil
}

// advance starts to read the next items of a group, unless some are there.
func (s *search) advance(h *head) {
	if len(h.rows) == 0 {
		h.read = s.snapshot.GetRange(h.rest, kv.RangeOptions{Limit: s.ahead, Reverse: s.end == Back})
	}
}

// arrive waits for what advance started, and reports whether there is an item. The transaction
// conflicts with whoever changes the group up to there.
func (s *search) arrive(h *head) (has bool, err error) {
	if len(h.rows) == 0 {
		if h.rows, err = h.read.Get(); err != nil {
			return false, err
		}
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
	item := state.BeginItem(s.l, s.snapshot, &h.id, max(s.share/max(s.left, 1), 1))
	h.item = &item
}

// next returns the next item, as nextOf does.
func (s *search) next() (*state.Stored, error) {
	for len(s.heads) > 0 {
		h := s.heads[0]
		if h.taken {
			if err := s.goOn(); err != nil {
				return nil, err
			}
			continue
		}
		if may, err := s.groups.may(h.hash); err != nil {
			return nil, err
		} else if !may {
			s.heads = s.heads[1:]
			continue
		}

		key := s.l.ItemKey(&h.id)
		if s.ends.Met(s.end, key) {
			return nil, nil
		}
		if h.value == nil {
			s.beginItem(h)
		}
		if h.item.Pair.Key == nil {
			value, err := h.value.Get()
			if err != nil {
				return nil, err
			}
			s.tx.AddReadConflict(kv.SingleKey(key))
			if value == nil { // another program has taken it
				if err := s.miss(h); err != nil {
					return nil, err
				}
				continue
			}
			h.item.SetOwn(s.l, value)
		}
		h.taken = true
		s.left--
		return h.item, nil
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

// goOn puts the first group where its next item is.
func (s *search) goOn() error {
	h := s.heads[0]
	s.heads = s.heads[1:]
	s.advance(h)
	has, err := s.arrive(h)
	if !has {
		return err
	}

	at, _ := slices.BinarySearchFunc(s.heads, h, s.compare)
	s.heads = slices.Insert(s.heads, at, h)
	if at < min(s.left, s.together) {
		s.beginItem(h)
	}
	return nil
}

// compare orders groups as their next items are served.
func (s *search) compare(a, b *head) int {
	if s.end == Back {
		a, b = b, a
	}
	return codec.CompareIDs(&a.id, &b.id)
}
