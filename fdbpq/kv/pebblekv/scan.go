package pebblekv

import (
	"bytes"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// scan is one range read. It skips the gaps that the store knows, and collects the gaps that it
// finds: see gaps.go.
type scan struct {
	iter    *pebble.Iterator
	index   *gapIndex
	version uint64 // that the reader is at
	finder  *gapFinder
	copies  *arena

	whole   kv.Range // what to read
	options kv.RangeOptions

	pairs   []kv.KeyValue
	size    int    // bytes of their values
	last    []byte // the key read last
	skipped bool   // a gap was skipped since then
}

// maxAhead is the most pairs to allocate room for in advance.
const maxAhead = 64

func (s *scan) read() ([]kv.KeyValue, error) {
	s.finder.restart()
	for r := s.whole; !r.Empty(); {
		// Read up to the next gap.
		part := s.index.part(r, s.version, s.options.Reverse)
		if len(part.Begin) != len(r.Begin) || len(part.End) != len(r.End) {
			s.skipped = true
		}
		if part.Empty() {
			break
		}
		if full, err := s.readPart(part); full || err != nil {
			return s.pairs, err
		}

		if s.options.Reverse {
			r.End = part.Begin
		} else {
			r.Begin = part.End
		}
	}

	s.noteGap(nil)
	return s.pairs, nil
}

// readPart reads r, which is not empty and may contain any number of dead keys. It reports whether
// a limit was reached.
func (s *scan) readPart(r kv.Range) (full bool, err error) {
	for valid := s.seek(r); valid; valid = s.next() {
		value, err := s.iter.ValueAndErr()
		if err != nil {
			return false, err
		}

		if s.pairs == nil && s.options.Limit > 0 {
			s.pairs = make([]kv.KeyValue, 0, min(s.options.Limit, maxAhead))
		}

		key := s.copies.clone(s.iter.Key())
		s.pairs = append(s.pairs, kv.KeyValue{Key: key, Value: s.copies.clone(value)})
		s.size += len(value)

		// All keys seen since the last pair are dead, but not this one.
		s.finder.seen--
		s.noteGap(key)
		s.finder.restart()
		s.last, s.skipped = key, false

		if len(s.pairs) == s.options.Limit || s.options.Bytes > 0 && s.size >= s.options.Bytes {
			return true, nil
		}
	}

	return false, s.iter.Error()
}

// noteGap notes that there is no key between the last one and key, if that is worth remembering.
// If key is nil, there is none up to the end of the range.
func (s *scan) noteGap(key []byte) {
	// Worth it are many dead keys in a row, or any next to a known gap.
	if len(s.finder.samples) == 0 && (!s.skipped || s.finder.seen <= 0) {
		return
	}

	r := s.whole
	below, above := s.last, key
	if s.options.Reverse {
		below, above = above, below
	}
	if below != nil {
		r.Begin = kv.SingleKey(below).End
	}
	if above != nil {
		r.End = above
	}

	s.finder.addGap(r, s.finder.samples...)
}

// setBounds has an iterator see only r, and not search beside it, where any number of keys may be
// dead. Limits of its methods do not prevent that.
func setBounds(iter *pebble.Iterator, r kv.Range) {
	if len(r.Begin) == 0 {
		r.Begin = nil // with the race detector Pebble cannot seek an empty key
	}
	iter.SetBounds(r.Begin, r.End)
}

// seek moves the iterator to the first pair of r.
func (s *scan) seek(r kv.Range) (valid bool) {
	setBounds(s.iter, r)
	if s.options.Reverse {
		return s.iter.Last()
	}
	return s.iter.First()
}

func (s *scan) next() (valid bool) {
	if s.options.Reverse {
		return s.iter.Prev()
	}
	return s.iter.Next()
}

// gapFinder collects the gaps that one transaction finds. Its zero value is ready to use.
type gapFinder struct {
	found *gapSet // nil if there are none

	// The keys that an iterator has stepped on since restart.
	seen    int
	samples [][]byte
}

// step counts a key, dead or alive. It is pebble.IterOptions.SkipPoint, the only way to see dead
// keys.
func (f *gapFinder) step(key []byte) bool {
	f.seen++
	if f.seen%sampleEvery == 0 {
		f.samples = append(f.samples, bytes.Clone(key))
	}
	return false
}

func (f *gapFinder) restart() { f.seen, f.samples = 0, f.samples[:0] }

// addGap notes that r holds only dead keys. The samples are some of them.
func (f *gapFinder) addGap(r kv.Range, samples ...[]byte) {
	if r.Empty() {
		return
	}
	if f.found == nil {
		f.found = newGapSet()
	}
	f.found.add(gap{begin: bytes.Clone(r.Begin), end: bytes.Clone(r.End)}, samples...)
}

// noteWrites notes that keys, which are in order, may exist now.
func (f *gapFinder) noteWrites(keys [][]byte) {
	if f.found != nil {
		f.found.trim(keys)
	}
}

// gapIndex has the gaps that all transactions of a store share. It is safe for concurrent use.
type gapIndex struct {
	limit int // bytes

	mu      sync.Mutex
	gaps    *gapSet
	applied uint64 // version of the newest commit
	writing bool   // the open write transaction has noted writes
}

func newGapIndex(limit int) *gapIndex {
	return &gapIndex{limit: limit, gaps: newGapSet()}
}

// part returns the first part of r, or the last, that is outside all gaps at version. It is empty
// if there is none.
func (x *gapIndex) part(r kv.Range, version uint64, last bool) kv.Range {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last {
		return x.gaps.last(r, version)
	}
	return x.gaps.first(r, version)
}

// noteWrites takes keys that the write transaction has written out of the gaps. They are in order.
// It is called before anybody reads them, even the transaction itself.
func (x *gapIndex) noteWrites(keys [][]byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = true
	x.gaps.trim(keys)
	x.gaps.shrink(x.limit)
}

// noteCancel notes that the write transaction was not applied.
func (x *gapIndex) noteCancel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = false
}

// publishCommitted shares the gaps that the write transaction found, which was applied as version.
// found may be nil.
func (x *gapIndex) publishCommitted(version, durable uint64, found *gapSet) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = false
	x.applied = version
	x.publish(found, version, durable)
}

// publishRead shares the gaps that a read-only transaction found at version. found may be nil.
func (x *gapIndex) publishRead(version uint64, found *gapSet) {
	if found == nil {
		return
	}

	x.mu.Lock()
	defer x.mu.Unlock()
	// A write made since then may have been into one of them.
	if !x.writing && x.applied == version {
		x.publish(found, version, version)
	}
}

// publish adds gaps that are empty since a version. The caller holds x.mu.
func (x *gapIndex) publish(found *gapSet, since, durable uint64) {
	if found != nil {
		x.gaps.addAll(found, since, durable)
		x.gaps.shrink(x.limit)
	}
}
