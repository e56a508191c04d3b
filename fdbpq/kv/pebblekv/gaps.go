package pebblekv

import (
	"bytes"
	"sync"

	"github.com/google/btree"
)

// Known-empty intervals
//
// A log-structured store does not remove a key, it writes a tombstone over it.
// A queue that is popped at its head leaves one tombstone for each pop, all of
// them below the next item, and a range read from the head steps over every
// one of them until a compaction removes them. So the store remembers key
// intervals of which it knows that they hold nothing, and range reads begin
// after them, at both ends.
//
// An interval is learnt from a range read, which looked at everything between
// the end of its range and the first key it returned, or from the clearing of
// a range. It is kept only if the read had to step over at least minDead dead
// entries, so that reads of live keys teach nothing. A key that is written
// splits the interval it is in. Each half is assumed to hide half of the dead
// entries, and is dropped when that is less than minDead: pushes into a queue
// that was emptied would otherwise leave one worthless interval for each item.
//
// Transactions see different versions. The version of the store is the number
// of transactions applied since it was opened. An interval has the version it
// is empty since, up to now: writes trim it before they are applied. So it may
// be used at every version that is not older. What a transaction learns is
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
	minDead = 8
	// gapOverhead is what an interval costs beyond its keys, in bytes.
	gapOverhead = 128
)

// gap says that no key is in [begin, end) since a version.
type gap struct {
	begin, end []byte
	since      uint64
	dead       int // how many dead entries it is thought to hide
}

func (g gap) size() int { return len(g.begin) + len(g.end) + gapOverhead }

// gapSet is disjoint gaps in key order. Slices it is given are kept and never
// changed. It is not safe for concurrent use.
type gapSet struct {
	tree  *btree.BTreeG[gap]
	bytes int
	hand  []byte // where to evict next
}

func newGapSet() *gapSet {
	return &gapSet{tree: btree.NewG(32, func(a, b gap) bool { return bytes.Compare(a.begin, b.begin) < 0 })}
}

func (s *gapSet) insert(g gap) {
	s.tree.ReplaceOrInsert(g)
	s.bytes += g.size()
}

func (s *gapSet) remove(g gap) {
	s.tree.Delete(g)
	s.bytes -= g.size()
}

// at returns the gap that key is in.
func (s *gapSet) at(key []byte) (found gap, ok bool) {
	s.tree.DescendLessOrEqual(gap{begin: key}, func(g gap) bool {
		found, ok = g, bytes.Compare(key, g.end) < 0
		return false
	})
	return found, ok
}

// before returns the gap that holds what is directly below key.
func (s *gapSet) before(key []byte) (found gap, ok bool) {
	s.tree.DescendLessOrEqual(gap{begin: key}, func(g gap) bool {
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
	s.tree.AscendGreaterOrEqual(gap{begin: key}, func(g gap) bool {
		found, ok = g, true
		return false
	})
	return found, ok
}

// narrow returns the part of [begin, end) that is left when what is known to
// be empty at version is cut off at both ends. It is empty if lo is not below
// hi.
func (s *gapSet) narrow(begin, end []byte, version uint64) (lo, hi []byte) {
	lo, hi = begin, end
	for {
		g, ok := s.at(lo)
		if !ok || g.since > version {
			break
		}
		lo = g.end
	}
	for bytes.Compare(lo, hi) < 0 {
		g, ok := s.before(hi)
		if !ok || g.since > version {
			break
		}
		hi = g.begin
	}
	return lo, hi
}

// trim takes key out of the gap it is in.
func (s *gapSet) trim(key []byte) {
	g, ok := s.at(key)
	if !ok {
		return
	}
	s.remove(g)
	after := append(bytes.Clone(key), 0)
	left, right := g, g
	left.end, right.begin = after[:len(key):len(key)], after
	hasLeft := bytes.Compare(left.begin, left.end) < 0
	hasRight := bytes.Compare(right.begin, right.end) < 0
	if hasLeft && hasRight {
		left.dead /= 2
		right.dead -= left.dead
	}
	if hasLeft && left.dead >= minDead {
		s.insert(left)
	}
	if hasRight && right.dead >= minDead {
		s.insert(right)
	}
}

// add adds the parts of g that are in no gap yet. Parts that are stay as they
// are, since they are known for longer.
func (s *gapSet) add(g gap) {
	begin := g.begin
	if first, ok := s.at(begin); ok {
		begin = first.end
	}
	for bytes.Compare(begin, g.end) < 0 {
		hole := gap{begin: begin, end: g.end, since: g.since, dead: g.dead}
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
}

// join makes one gap of neighbours that touch [begin, end) wherever they are
// equally old or both durable.
func (s *gapSet) join(begin, end []byte, durable uint64) {
	g, ok := s.before(begin)
	if !ok {
		g, ok = s.from(begin)
	}
	for ok && bytes.Compare(g.begin, end) <= 0 {
		var next gap
		next, ok = s.from(g.end)
		if !ok || !bytes.Equal(g.end, next.begin) {
			g = next
			continue
		}
		since := max(g.since, next.since)
		if g.since != next.since && since > durable {
			g = next
			continue
		}
		s.remove(g)
		s.remove(next)
		g = gap{begin: g.begin, end: next.end, since: since, dead: g.dead + next.dead}
		s.insert(g)
	}
}

// shrink evicts gaps, one after the other in key order, until the set takes no
// more than limit bytes.
func (s *gapSet) shrink(limit int) {
	for s.bytes > limit {
		g, ok := s.from(s.hand)
		if !ok {
			g, _ = s.tree.Min()
		}
		s.remove(g)
		s.hand = g.end
	}
}

// knowledge is the gaps that all transactions of a store share. A nil
// *knowledge knows nothing and learns nothing.
type knowledge struct {
	limit int // bytes

	mu      sync.Mutex
	gaps    *gapSet
	applied uint64
	writing bool // the write transaction under way has written a key
}

func newKnowledge(limit int) *knowledge {
	return &knowledge{limit: limit, gaps: newGapSet()}
}

// narrow is gapSet.narrow.
func (k *knowledge) narrow(begin, end []byte, version uint64) (lo, hi []byte) {
	if k == nil {
		return begin, end
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gaps.narrow(begin, end, version)
}

// wrote is called by the write transaction before key appears in its batch.
func (k *knowledge) wrote(key []byte) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writing = true
	k.gaps.trim(key)
}

// committed is called when the write transaction was applied as version, with
// what it learnt, which may be nil.
func (k *knowledge) committed(version, durable uint64, learnt *gapSet) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writing = false
	k.applied = version
	k.publish(version, durable, learnt)
}

// cancelled is called when the write transaction was not applied.
func (k *knowledge) cancelled() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writing = false
}

// observed is called with what a read-only transaction at version learnt.
func (k *knowledge) observed(version uint64, learnt *gapSet) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.writing && k.applied == version {
		k.publish(version, version, learnt)
	}
}

func (k *knowledge) publish(since, durable uint64, learnt *gapSet) {
	if learnt == nil {
		return
	}
	learnt.tree.Ascend(func(g gap) bool {
		g.since = since
		k.gaps.add(g)
		k.gaps.join(g.begin, g.end, durable)
		return true
	})
	k.gaps.shrink(k.limit)
}
