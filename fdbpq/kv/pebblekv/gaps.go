package pebblekv

import (
	"bytes"

	"github.com/google/btree"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Known-empty intervals
//
// A log-structured store does not remove a key, it writes a tombstone over it.
// A queue that is popped at its head leaves one tombstone for each pop, all of
// them below the next item, and a range read from the head steps over every
// one of them until a compaction removes them. So the store remembers key
// intervals of which it knows that they hold nothing, gaps for short, and range
// reads look only at what is between them.
//
// A gap is learnt from a range read that stepped over many dead keys in a row,
// or over any between two gaps, and from the clearing of a range. Some of the
// dead keys are kept as marks, one in markEvery. A key that is written splits
// the gap it is in, and only a part that has minMarks stays a gap, of the other
// the marks are forgotten too: pushes into a queue that was emptied would
// otherwise leave a worthless gap between each two items, and to seek past a gap
// costs as much as to step over some ten dead keys. One mark would not do. A
// priority that was emptied counts from the start again, so its items come to
// lie where those before them were, and marks between them would become more
// with each time.
//
// Transactions see different versions. The version of the store is the number
// of transactions applied since it was opened. A gap has the version it is
// empty since, up to now: writes trim it before they are applied. So it may be
// used at every version that is not older. What a transaction learns is
// published when it commits, as empty since its own version, because it may
// be the one who cleared the keys; what it wrote after it read is trimmed from
// that first. A transaction that is cancelled publishes nothing.
//
// Readers are at the durable version, which lags behind the applied one by the
// commits whose sync is under way. Hence neighbours learnt at different
// versions are joined only once both are durable: a reader that lags behind
// the last pop still profits from all pops before it.
//
// A read-only transaction publishes what it learnt only if nothing was applied
// since its version and no write transaction has written a key so far.

const (
	markEvery = 32
	minMarks  = 2
	// gapOverhead and markOverhead are what they cost beyond their keys, in
	// bytes.
	gapOverhead  = 128
	markOverhead = 48
)

// gap says that no key is in [begin, end) since a version.
type gap struct {
	begin, end []byte
	since      uint64
}

// gapSet is disjoint gaps in key order, and marks in them. Slices it is given
// are kept and never changed. It is not safe for concurrent use.
type gapSet struct {
	gaps  *btree.BTreeG[gap]
	marks *btree.BTreeG[[]byte]
	bytes int    // what it takes
	hand  []byte // where to evict next
}

func newGapSet() *gapSet {
	return &gapSet{
		gaps:  btree.NewG(16, func(a, b gap) bool { return bytes.Compare(a.begin, b.begin) < 0 }),
		marks: btree.NewG(16, func(a, b []byte) bool { return bytes.Compare(a, b) < 0 }),
	}
}

func (s *gapSet) insert(g gap) {
	s.gaps.ReplaceOrInsert(g)
	s.bytes += len(g.begin) + len(g.end) + gapOverhead
}

func (s *gapSet) remove(g gap) {
	s.gaps.Delete(g)
	s.bytes -= len(g.begin) + len(g.end) + gapOverhead
}

func (s *gapSet) mark(key []byte) {
	if _, known := s.marks.ReplaceOrInsert(key); !known {
		s.bytes += len(key) + markOverhead
	}
}

func (s *gapSet) unmark(key []byte) {
	if _, known := s.marks.Delete(key); known {
		s.bytes -= len(key) + markOverhead
	}
}

// marked returns the number of marks of g, but not more than max, and the first
// of them.
func (s *gapSet) marked(g gap, max int) (n int, first []byte) {
	s.marks.AscendGreaterOrEqual(g.begin, func(key []byte) bool {
		if bytes.Compare(key, g.end) >= 0 {
			return false
		}
		if n++; n == 1 {
			first = key
		}
		return n < max
	})
	return n, first
}

// forget removes the marks of g.
func (s *gapSet) forget(g gap) {
	for {
		n, key := s.marked(g, 1)
		if n == 0 {
			return
		}
		s.unmark(key)
	}
}

// at returns the gap that key is in.
func (s *gapSet) at(key []byte) (found gap, ok bool) {
	s.gaps.DescendLessOrEqual(gap{begin: key}, func(g gap) bool {
		found, ok = g, bytes.Compare(key, g.end) < 0
		return false
	})
	return found, ok
}

// before returns the gap that holds what is directly below key.
func (s *gapSet) before(key []byte) (found gap, ok bool) {
	s.gaps.DescendLessOrEqual(gap{begin: key}, func(g gap) bool {
		if bytes.Equal(g.begin, key) {
			return true
		}
		found, ok = g, bytes.Compare(key, g.end) <= 0
		return false
	})
	return found, ok
}

// from returns the first gap that begins at key or above.
func (s *gapSet) from(key []byte) (found gap, ok bool) {
	s.gaps.AscendGreaterOrEqual(gap{begin: key}, func(g gap) bool {
		found, ok = g, true
		return false
	})
	return found, ok
}

// first returns the first part of r that is not known to be empty at version.
// It ends where the next gap begins. If there is none it is empty.
func (s *gapSet) first(r kv.Range, version uint64) kv.Range {
	for {
		g, ok := s.at(r.Begin)
		if !ok || g.since > version {
			break
		}
		r.Begin = g.end
	}
	s.gaps.AscendGreaterOrEqual(gap{begin: r.Begin}, func(g gap) bool {
		if bytes.Compare(g.begin, r.End) >= 0 {
			return false
		}
		if g.since > version {
			return true
		}
		r.End = g.begin
		return false
	})
	return r
}

// last returns the last part of r that is not known to be empty at version. It
// begins where the gap before it ends. If there is none it is empty.
func (s *gapSet) last(r kv.Range, version uint64) kv.Range {
	for !r.Empty() {
		g, ok := s.before(r.End)
		if !ok || g.since > version {
			break
		}
		r.End = g.begin
	}
	s.gaps.DescendLessOrEqual(gap{begin: r.End}, func(g gap) bool {
		if bytes.Compare(g.end, r.Begin) <= 0 {
			return false
		}
		if g.since > version || bytes.Compare(g.end, r.End) > 0 {
			return true
		}
		r.Begin = g.end
		return false
	})
	return r
}

// trim takes key out of the gap it is in.
func (s *gapSet) trim(key []byte) {
	g, ok := s.at(key)
	if !ok {
		return
	}
	s.remove(g)
	s.unmark(key)
	after := kv.SingleKey(key)
	for _, part := range []gap{{g.begin, after.Begin, g.since}, {after.End, g.end, g.since}} {
		if n, _ := s.marked(part, minMarks); n == minMarks {
			s.insert(part)
		} else {
			s.forget(part)
		}
	}
}

// add adds the parts of g that are in no gap yet, and marks in g. Parts that are
// in one stay as they are, since they are known for longer.
func (s *gapSet) add(g gap, marks ...[]byte) {
	begin := g.begin
	if first, ok := s.at(begin); ok {
		begin = first.end
	}
	for bytes.Compare(begin, g.end) < 0 {
		hole := gap{begin, g.end, g.since}
		next, ok := s.from(begin)
		if ok && bytes.Compare(next.begin, g.end) < 0 {
			hole.end = next.begin
			begin = next.end
		} else {
			begin = g.end
		}
		if bytes.Compare(hole.begin, hole.end) < 0 {
			s.insert(hole)
		}
	}
	for _, key := range marks {
		if bytes.Compare(g.begin, key) <= 0 && bytes.Compare(key, g.end) < 0 {
			s.mark(key)
		}
	}
}

// join makes one gap of neighbours that touch g wherever they are equally old
// or both durable.
func (s *gapSet) join(g gap, durable uint64) {
	end := g.end
	g, ok := s.before(g.begin)
	if !ok {
		g, ok = s.from(g.begin)
	}
	for ok && bytes.Compare(g.begin, end) <= 0 {
		var next gap
		next, ok = s.from(g.end)
		since := max(g.since, next.since)
		if !ok || !bytes.Equal(g.end, next.begin) || (g.since != next.since && since > durable) {
			g = next
			continue
		}
		s.remove(g)
		s.remove(next)
		g = gap{g.begin, next.end, since}
		s.insert(g)
	}
}

// addAll adds all of other, as empty since a version, and joins what it can.
func (s *gapSet) addAll(other *gapSet, since, durable uint64) {
	other.gaps.Ascend(func(g gap) bool {
		g.since = since
		s.add(g)
		s.join(g, durable)
		return true
	})
	other.marks.Ascend(func(key []byte) bool {
		s.mark(key)
		return true
	})
}

// shrink evicts gaps, one after the other in key order, until the set takes no
// more than limit bytes.
func (s *gapSet) shrink(limit int) {
	for s.bytes > limit {
		g, ok := s.from(s.hand)
		if !ok {
			g, _ = s.gaps.Min()
		}
		s.remove(g)
		s.forget(g)
		s.hand = g.end
	}
}
