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
	// searchedAtOnce is how many groups a search reads at once.
	searchedAtOnce = 2048
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
		if hash := codec.GroupIn(&s.Item.ID); q.groups.limited(hash) && q.groups.groups[hash] == nil {
			q.groups.begin(func(yield func(*ID) bool) { yield(&s.Item.ID) })
			q.groups.begin(q.ends.Ahead(end))
		}
		if may, err := q.groups.may(codec.GroupIn(&s.Item.ID)); err != nil || may {
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
		search.again = s
		return
	}
	q.ends.Unread(end, s)
}

// search finds the items of groups that may be served, in order, behind what a walk has passed over.
// What is between is of other groups, so it never reads that.
type search struct {
	*queuePops
	end   End
	heads []*head       // in the order of their items
	taken *head         // the group of the last item, which is not in heads
	again *state.Stored // to be returned once more
}

// head is the next item of a group.
type head struct {
	hash codec.GroupHash
	rest kv.Range                 // what is left of the group
	read kv.Future[[]kv.KeyValue] // its next one
	id   ID
}

// beginSearch starts a search behind the key of an item in ("i"). It returns nil the first time if
// there are items that are in no index: the walk has to go on.
func (q *queuePops) beginSearch(end End, after []byte) (*search, error) {
	counters, total, pending := q.ledger.BeginGroupLoads()
	var rows kv.Future[[]kv.KeyValue]
	if q.groups.rate.Count > 0 {
		rows = q.snapshot.GetRange(q.l.GroupBuckets(), kv.RangeOptions{Limit: state.MostGroupRows})
	}

	loads, cut, err := state.GroupLoads(q.l, counters, state.MostGroupRows)
	if err != nil {
		return nil, err
	}
	indexed := int64(0)
	for _, load := range loads {
		indexed += load.Ready
	}
	ready, err := state.ReadCounter(total)
	if err != nil {
		return nil, err
	}
	if indexed < ready+pending && !q.unindexed[end] {
		return nil, nil
	}

	if err := q.groups.know(loads, cut, rows); err != nil {
		return nil, err
	}
	s := &search{queuePops: q, end: end}
	for _, load := range loads {
		if load.Ready > 0 {
			s.heads = append(s.heads, &head{hash: load.Hash, rest: q.l.GroupBeyond(load.Hash, end, after)})
		}
	}
	return s, s.readHeads()
}

// know takes what limits groups from their counters and the rows of their rates. If not all of these
// were read, it reads what may be missing.
func (p *groupLimits) know(loads []state.GroupLoad, cut bool, rows kv.Future[[]kv.KeyValue]) error {
	var buckets map[codec.GroupHash][]byte
	if rows != nil {
		var err error
		if buckets, err = groupBuckets(p.l, rows); err != nil {
			return err
		}
	}

	for i, load := range loads {
		row := buckets[load.Hash]
		switch {
		case !p.limited(load.Hash) || p.groups[load.Hash] != nil:
		case cut && i == len(loads)-1, row == nil && len(buckets) == state.MostGroupRows:
			p.beginGroup(load.Hash)
		default:
			group := &groupState{leased: load.Leased}
			if rows != nil {
				group.bucket = state.KnownBucket(load.Hash, p.rate, row)
			}
			p.groups[load.Hash] = group
		}
	}
	return nil
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
	return nil
}

// advance starts to read the next item of a group.
func (s *search) advance(h *head) {
	h.read = s.tx.GetRange(h.rest, kv.RangeOptions{Limit: 1, Reverse: s.end == Back})
}

// arrive waits for what advance started, and reports whether there is an item.
func (s *search) arrive(h *head) (has bool, err error) {
	pairs, err := h.read.Get()
	if err != nil || len(pairs) == 0 {
		return false, err
	}
	if h.id, err = s.l.ParseGroupItem(pairs[0].Key); err != nil {
		return false, err
	}

	if s.end == Front {
		h.rest.Begin = kv.SingleKey(pairs[0].Key).End
	} else {
		h.rest.End = pairs[0].Key
	}
	return true, nil
}

// next returns the next item, as nextOf does.
func (s *search) next() (*state.Stored, error) {
	if again := s.again; again != nil {
		s.again = nil
		return again, nil
	}

	if err := s.goOn(); err != nil {
		return nil, err
	}
	for len(s.heads) > 0 {
		h := s.heads[0]
		if may, err := s.groups.may(h.hash); err != nil {
			return nil, err
		} else if !may {
			s.heads = s.heads[1:]
			continue
		}

		key := s.l.ItemKey(&h.id)
		if s.ends.Met(s.end, key) {
			s.heads = nil
			break
		}
		value, err := s.tx.Get(key).Get()
		if err != nil {
			return nil, err
		}
		s.heads, s.taken = s.heads[1:], h
		if value != nil {
			item := state.ParseStored(s.l, kv.KeyValue{Key: key, Value: value})
			return &item, nil
		}

		s.ledger.MissReady(&h.id) // another program has taken it
		if err := s.goOn(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// goOn puts the group of the item that next has returned where its next item is. That is not read before, because
// the transaction conflicts with pushes of a group up to what was read.
func (s *search) goOn() error {
	h := s.taken
	if h == nil {
		return nil
	}
	s.taken = nil
	s.advance(h)
	has, err := s.arrive(h)
	if has {
		at, _ := slices.BinarySearchFunc(s.heads, h, s.compare)
		s.heads = slices.Insert(s.heads, at, h)
	}
	return err
}

// compare orders groups as their next items are served.
func (s *search) compare(a, b *head) int {
	if s.end == Back {
		a, b = b, a
	}
	return codec.CompareIDs(&a.id, &b.id)
}
