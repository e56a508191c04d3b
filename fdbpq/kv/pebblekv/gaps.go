package pebblekv

import (
	"bytes"
	"slices"

	"github.com/google/btree"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Gaps: intervals known to be empty
//
// A log-structured store does not remove a key, it writes a tombstone over it. Popping a queue at
// its head leaves a tombstone for each pop, all of them below the next item, and a range read from
// the head steps over every one until a compaction removes them. So the store remembers intervals
// that hold no key, gaps for short, and range reads skip them.
//
// Finding. A range read finds a gap when it steps over many dead keys in a row, or over any between
// two gaps. Clearing a range makes one. One in sampleEvery of the dead keys is kept as a sample.
//
// Splitting. Writing a key splits the gap it is in. A part with fewer than minSamples is dropped
// with its samples: seeking past a gap costs as much as stepping over some ten dead keys, and
// pushes into an emptied queue would leave a worthless gap between every two items. One sample is
// not enough: a priority that was emptied counts from the start again, so its items land where
// earlier ones were.
//
// Versions. Transactions see different versions; the version is the number of the newest commit
// applied. A gap has been empty from its version, since, up to now, because writes trim it before
// anybody reads them.
//
// Publishing. A transaction publishes the gaps it found when it commits, as empty since its own
// version, because it may have cleared the keys itself. Keys that it wrote after reading are
// trimmed from them first. A cancelled transaction publishes nothing. A read-only transaction
// publishes only if nothing was applied since its version and the open write transaction has
// trimmed nothing yet.
//
// Joining. Readers are at the durable version, which lags behind the applied one. Hence neighbours
// of different versions are joined only once both are durable, so that a reader one pop behind
// still profits from all earlier pops.

const (
	sampleEvery = 32
	minSamples  = 2

	// What a gap and a sample take besides their keys, in bytes.
	gapOverhead    = 128
	sampleOverhead = 48
)

// gap says that no key has been in [begin, end) since a version.
type gap struct {
	begin, end []byte
	since      uint64
}

// gapSet is a set of disjoint gaps and the samples in them, in key order. It keeps the slices it is
// given and never changes them. It is not safe for concurrent use.
type gapSet struct {
	gaps    *btree.BTreeG[gap]
	samples *btree.BTreeG[[]byte]
	bytes   int    // of memory
	evicted []byte // up to where shrink has evicted
}

func newGapSet() *gapSet {
	return &gapSet{
		gaps:    btree.NewG(16, func(a, b gap) bool { return bytes.Compare(a.begin, b.begin) < 0 }),
		samples: btree.NewG(16, func(a, b []byte) bool { return bytes.Compare(a, b) < 0 }),
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

func (s *gapSet) addSample(key []byte) {
	if _, known := s.samples.ReplaceOrInsert(key); !known {
		s.bytes += len(key) + sampleOverhead
	}
}

func (s *gapSet) dropSample(key []byte) {
	if _, known := s.samples.Delete(key); known {
		s.bytes -= len(key) + sampleOverhead
	}
}

// countSamples returns the number of samples in g, at most max, and the first one.
func (s *gapSet) countSamples(g gap, max int) (n int, first []byte) {
	s.samples.AscendGreaterOrEqual(g.begin, func(key []byte) bool {
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

// dropSamples removes the samples in g.
func (s *gapSet) dropSamples(g gap) {
	for {
		n, key := s.countSamples(g, 1)
		if n == 0 {
			return
		}
		s.dropSample(key)
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

// before returns the gap that ends at key, or contains the keys directly below it.
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

// first returns the first part of r that is outside all gaps at version. It ends where the next gap
// begins, and is empty if there is no such part.
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

// last returns the last part of r that is outside all gaps at version. It begins where the gap
// before it ends, and is empty if there is no such part.
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

// trim cuts keys, which are in order, out of the gaps they are in.
func (s *gapSet) trim(keys [][]byte) {
	below := func(end []byte) int { // the number of keys
		n, _ := slices.BinarySearchFunc(keys, end, bytes.Compare)
		return n
	}

	for len(keys) > 0 {
		g, ok := s.at(keys[0])
		if !ok {
			g, ok = s.from(keys[0])
		}
		if !ok {
			return
		}

		keys = keys[below(g.begin):]
		if inside := below(g.end); inside > 0 {
			s.cut(g, keys[:inside])
			keys = keys[inside:]
		}
	}
}

// cut replaces a gap by its parts between keys, which are in order, and all in the gap. The samples
// tell how many dead keys a part spares its readers; parts without any are dropped at once.
func (s *gapSet) cut(g gap, keys [][]byte) {
	s.remove(g)

	var last []byte
	_, sample := s.countSamples(g, 1) // the first behind last
	for _, key := range keys {
		if sample == nil {
			return
		}
		if bytes.Compare(sample, key) <= 0 {
			// The key lies in memory with everything else that its transaction has written.
			s.keepPart(g, last, bytes.Clone(key))
			s.dropSample(key)
			_, sample = s.countSamples(gap{begin: key, end: g.end}, 1)
		}
		last = key
	}
	s.keepPart(g, last, g.end)
}

// keepPart keeps the part of a gap behind a key, nil for all, and below end, if it has samples
// enough.
func (s *gapSet) keepPart(g gap, after, end []byte) {
	if after != nil {
		g.begin = kv.SingleKey(after).End
	}
	g.end = end
	if n, _ := s.countSamples(g, minSamples); n == minSamples {
		s.insert(g)
	} else {
		s.dropSamples(g)
	}
}

// add adds the parts of g that are in no gap yet, and the samples that are in g. Existing gaps stay
// as they are, because they have been empty for longer.
func (s *gapSet) add(g gap, samples ...[]byte) {
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

	for _, key := range samples {
		if bytes.Compare(g.begin, key) <= 0 && bytes.Compare(key, g.end) < 0 {
			s.addSample(key)
		}
	}
}

// join merges g with adjacent gaps of the same version, or of any if both are durable.
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
		joinable := g.since == next.since || since <= durable
		if !ok || !bytes.Equal(g.end, next.begin) || !joinable {
			g = next
			continue
		}

		s.remove(g)
		s.remove(next)
		g = gap{g.begin, next.end, since}
		s.insert(g)
	}
}

// addAll adds all of other as empty since a version, and merges what it can.
func (s *gapSet) addAll(other *gapSet, since, durable uint64) {
	other.gaps.Ascend(func(g gap) bool {
		g.since = since
		s.add(g)
		s.join(g, durable)
		return true
	})

	other.samples.Ascend(func(key []byte) bool {
		s.addSample(key)
		return true
	})
}

// shrink evicts gaps until the set takes no more than limit bytes. It goes in key order, from where
// it last stopped.
func (s *gapSet) shrink(limit int) {
	for s.bytes > limit {
		g, ok := s.from(s.evicted)
		if !ok {
			g, _ = s.gaps.Min()
		}
		s.remove(g)
		s.dropSamples(g)
		s.evicted = g.end
	}
}
