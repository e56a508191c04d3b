package fdbpq

import (
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// searchedAtOnce is how many groups a search reads at once, and maxPerGroup how many items of
	// one.
	searchedAtOnce = 2048
	maxPerGroup    = 64
	// maxSearchConflicts is about how much of a transaction the conflicts of a search may take. If
	// they would take more, it conflicts with all changes of ready items with groups.
	maxSearchConflicts = 2 << 20
)

// beginSearch starts a search after the key of an item in ("i"). The first time, it returns nil if
// the walk has to go on: some items are in no index, or passing over further items is cheaper than
// reading all groups.
func (s *side) beginSearch(after []byte) (*search, error) {
	if s.walksOn && s.searchedTooLong() {
		return nil, ErrManyGroups
	}

	defer func() { s.limits.page = nil }()
	if to := s.outgoing.Queues[s.l.Prefix]; to != nil {
		to.Ledger.FlushGroups()
	}
	page, total, pending := s.ledger.BeginGroupLoads(s.bounds.groupRows)
	pending += s.outgoing.Ready(s.l)
	loads, rest, err := s.limits.loadGroups(page)
	if err != nil {
		return nil, err
	}

	if !s.walksOn {
		ready, err := state.ReadCounter(total)
		if err != nil {
			return nil, err
		}
		indexed := int64(0)
		for _, load := range loads {
			indexed += load.Ready
		}
		if !rest.Empty() || indexed < ready+pending {
			return nil, nil
		}
	}

	found := &search{side: s, after: after, others: s.l.KindRange(codec.KindGroupReady)}
	for {
		if err := found.addGroups(loads); err != nil {
			return nil, err
		}
		if rest.Empty() {
			break
		}
		page := s.snapshot.GetRange(rest, kv.RangeOptions{Limit: s.bounds.groupRows})
		if loads, rest, err = s.limits.loadGroups(page); err != nil {
			return nil, err
		}
	}

	found.conflict(found.others)
	found.beginItems()
	return found, nil
}

// searchedTooLong reports whether the transaction has no time for further searches.
func (t *txn) searchedTooLong() bool { return time.Since(t.begun) >= t.bounds.time }

// conflict makes the transaction conflict with changes of a part of the index.
func (s *search) conflict(keys kv.Range) {
	if s.conflicts > maxSearchConflicts { // it conflicts with all of it
		return
	}
	if s.conflicts += len(keys.Begin) + len(keys.End); s.conflicts > maxSearchConflicts {
		keys = s.l.KindRange(codec.KindGroupReady)
	}
	s.tx.AddReadConflict(keys)
}

// addGroups looks at the first item of each group that may be served. Groups come in the order of
// their keys.
func (s *search) addGroups(loads []state.GroupLoad) error {
	var open []*head
	for _, load := range loads {
		if load.Ready <= 0 {
			continue
		}

		// The item of a group that had none would be between two others in the index, and may be
		// the next to serve.
		group := s.l.GroupItems(codec.KindGroupReady, load.Hash)
		s.conflict(kv.Range{Begin: s.others.Begin, End: group.Begin})
		s.others.Begin = group.End

		// A group that may not be served now cannot be served later in the transaction either.
		if served, err := s.limits.mayServe(load.Hash); err != nil {
			return err
		} else if served {
			rest := s.l.GroupBeyond(load.Hash, s.end, s.after)
			open = append(open, &head{hash: load.Hash, rest: rest})
		}
	}

	s.perGroup = min(s.want/max(len(open), 1)+1, maxPerGroup)
	for some := range slices.Chunk(open, searchedAtOnce) {
		if s.looks++; s.looks > 1 && s.searchedTooLong() {
			return ErrManyGroups
		}
		if err := s.addHeads(some); err != nil {
			return err
		}
	}

	s.keepFirst()
	return nil
}

// addHeads reads the first items of groups.
func (s *search) addHeads(some []*head) error {
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
	return nil
}

// keepFirst sorts the heads, and forgets all but the first and what limits the others.
func (s *search) keepFirst() {
	slices.SortFunc(s.heads, s.compare)
	if most := s.bounds.heads; len(s.heads) > most {
		if next := s.heads[most]; s.beyond == nil || s.compare(next, s.beyond) < 0 {
			s.beyond = next
		}
		clear(s.heads[most:])
		s.heads = s.heads[:most]
	}
	for _, h := range s.heads {
		if u := s.limits.page[h.hash]; u != nil {
			s.limits.groups[h.hash] = u
		}
	}
}

// beginItems starts to read the first items.
func (s *search) beginItems() {
	if s.returned.Refused { // nothing more is returned
		return
	}
	for _, h := range s.heads[:min(len(s.heads), s.want, s.returned.AtOnce())] {
		s.beginItem(h)
	}
}

// beginRows starts to read the next keys of a group, unless some are left from an earlier read.
func (s *search) beginRows(h *head) kv.Future[[]kv.KeyValue] {
	if len(h.rows) > 0 {
		return kv.Ready(h.rows, nil)
	}
	return s.snapshot.GetRange(h.rest, kv.RangeOptions{Limit: s.perGroup, Reverse: s.end == Back})
}

// advance goes on to the next item of a group, with what beginRows started to read, and reports
// whether there is one. The transaction conflicts with changes of the group up to there.
func (s *search) advance(h *head, rows kv.Future[[]kv.KeyValue]) (has bool, err error) {
	if h.rows, err = rows.Get(); err != nil {
		return false, err
	}
	if len(h.rows) == 0 {
		s.conflict(h.rest)
		return false, nil
	}
	row := kv.SingleKey(h.rows[0].Key)
	if h.id, err = s.l.ParseGroupItem(row.Begin); err != nil {
		return false, err
	}

	h.rows, h.value, h.taken = h.rows[1:], nil, false
	if s.end == Front {
		s.conflict(kv.Range{Begin: h.rest.Begin, End: row.End})
		h.rest.Begin = row.End
	} else {
		s.conflict(kv.Range{Begin: row.Begin, End: h.rest.End})
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

// next returns the next item, nil after the last or where the other side has taken the rest. The
// error is ErrNotYet if the item of a group that the search has forgotten comes first.
func (s *search) next() (*state.ItemRead, error) {
	for len(s.heads) > 0 {
		h := s.heads[0]
		if h.taken {
			if err := s.goOn(); err != nil {
				return nil, err
			}
			continue
		}
		if s.beyond != nil && s.compare(s.beyond, h) < 0 {
			break
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

	if s.beyond != nil {
		return nil, state.ErrNotYet
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
