package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// searchedAtOnce is how many groups a search reads at once, and maxAhead how many items of one.
	searchedAtOnce = 2048
	maxAhead       = 64
	// maxGapBytes is about how much of a transaction the conflicts with groups without items may
	// take. If they would take more, it conflicts with all groups.
	maxGapBytes = 1 << 20
)

// search finds the items of groups that may be served, in order, after those that a walk has passed
// over. It never reads the items of other groups between them. It reads ahead without conflict, and
// conflicts with pushes to a group up to the last item of the group that it has looked at.
type search struct {
	*side
	heads []*head // of groups that may be served, in the order of their items
	ahead int     // how many items of a group are read at once
}

// head is the next item of a group.
type head struct {
	hash codec.GroupHash
	rest kv.Range      // the keys of the group after this item
	rows []kv.KeyValue // the first of these, as far as they are read

	id    ID
	value kv.Future[[]byte] // nil unless the item is being read
	item  *state.Stored     // valid if value is set; has its Pair.Key once next has returned it
	taken bool              // the search goes on to the item after it
}

// beginSearch starts a search after the key of an item in ("i"). If some items are in no index, it
// returns nil the first time: the walk has to go on.
func (s *side) beginSearch(after []byte) (*search, error) {
	counters, total, pending := s.ledger.BeginGroupLoads()
	loads, _, err := s.limits.loadGroups(counters, state.MostGroupRows)
	if err != nil {
		return nil, err
	}
	ready, err := state.ReadCounter(total)
	if err != nil {
		return nil, err
	}

	found, indexed := &search{side: s}, int64(0)
	for _, load := range loads {
		indexed += load.Ready
		if load.Ready > 0 {
			rest := s.l.GroupBeyond(load.Hash, s.end, after)
			found.heads = append(found.heads, &head{hash: load.Hash, rest: rest})
		}
	}
	if indexed < ready+pending && !s.unindexed {
		return nil, nil
	}
	found.conflictWithOthers()
	return found, found.readHeads()
}

// conflictWithOthers makes the transaction conflict with others that add an item to a group without
// ready items, because such an item may be the next to serve.
func (s *search) conflictWithOthers() {
	others := s.l.KindRange(codec.KindGroupReady)
	if len(s.heads)*(len(others.Begin)+len(others.End)) > maxGapBytes {
		s.tx.AddReadConflict(others)
		return
	}

	// In the index, such groups lie between the heads, which are still in the order of its keys.
	for _, h := range s.heads {
		group := s.l.GroupItems(codec.KindGroupReady, h.hash)
		s.tx.AddReadConflict(kv.Range{Begin: others.Begin, End: group.Begin})
		others.Begin = group.End
	}
	s.tx.AddReadConflict(others)
}

// readHeads reads the first item of each group that may be served.
func (s *search) readHeads() error {
	// A group that may not be served now cannot be served later in the transaction either.
	var open []*head
	for _, h := range s.heads {
		if served, err := s.limits.mayServe(h.hash); err != nil {
			return err
		} else if served {
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

// beginRows starts to read the next keys of a group, unless some are left from an earlier read.
func (s *search) beginRows(h *head) kv.Future[[]kv.KeyValue] {
	if len(h.rows) > 0 {
		return kv.Ready(h.rows, nil)
	}
	return s.snapshot.GetRange(h.rest, kv.RangeOptions{Limit: s.ahead, Reverse: s.end == Back})
}

// advance goes on to the next item of a group, with what beginRows started to read, and reports
// whether there is one. The transaction conflicts with changes of the group up to there.
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

// next returns the next item, nil after the last or where the other side has taken the rest.
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
		if h.item.Pair.Key != nil { // returned before, and not taken
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
		if err := s.removeMissing(h); err != nil { // another program has taken it
			return nil, err
		}
	}
	return nil, nil
}

// removeMissing removes the stale index key of an item that is gone, unless the search from the
// other end, which may have read the key too, already has.
func (s *search) removeMissing(h *head) error {
	row, err := s.snapshot.Get(s.l.GroupItemKey(codec.KindGroupReady, h.hash, &h.id)).Get()
	if row != nil {
		s.ledger.MissReady(&h.id)
	}
	h.taken = true
	return err
}

// goOn moves the first group to the place of its next item, if it may still be served.
func (s *search) goOn() error {
	h := s.heads[0]
	s.heads = s.heads[1:]
	if served, err := s.limits.mayServe(h.hash); err != nil || !served {
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

// loadGroups waits for up to limit counters of groups, and takes what limits these groups from the
// counters and from the rows of their rates. If not all of that was read, it starts to read what
// may be missing; cut says that there may be more groups. The error is ErrCorrupt or one of the
// store.
func (p *popLimits) loadGroups(
	counters kv.Future[[]kv.KeyValue], limit int,
) (loads []state.GroupLoad, cut bool, err error) {
	rows := kv.Ready[[]kv.KeyValue](nil, nil)
	if p.groupRate.Count > 0 {
		rows = p.snapshot.GetRange(p.l.GroupBuckets(), kv.RangeOptions{Limit: state.MostGroupRows})
	}
	if loads, cut, err = state.GroupLoads(p.l, counters, limit); err != nil {
		return nil, cut, err
	}
	pairs, err := rows.Get()
	if err != nil {
		return nil, cut, err
	}
	buckets := make(map[codec.GroupHash][]byte, len(pairs))
	for _, pair := range pairs {
		if hash, err := p.l.ParseBucketKey(pair.Key); err == nil {
			buckets[hash] = pair.Value
		}
	}

	for i, load := range loads {
		row := buckets[load.Hash]
		switch {
		case p.isKnown(load.Hash):

		// The counters or the rows were cut off here, so something may be missing.
		case cut && i == len(loads)-1, row == nil && len(pairs) == state.MostGroupRows:
			p.beginGroup(load.Hash)

		default:
			u := &quota{maxLeased: p.set.MaxLeasedPerGroup, leased: load.Leased}
			if p.groupRate.Count > 0 {
				u.bucket = state.NewBucket(load.Hash, p.groupRate, kv.Ready(row, nil))
			}
			p.groups[load.Hash] = u
		}
	}
	return loads, cut, nil
}
