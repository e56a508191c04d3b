package pebblekv

import (
	"bytes"
	"iter"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// gapIndex has the gaps that all transactions of a store share, see gaps.go. It is safe for
// concurrent use.
type gapIndex struct {
	limit int // bytes

	mu      sync.Mutex
	gaps    *gapSet
	applied uint64
	writing bool // the open write transaction has noted writes
}

func newGapIndex(limit int) *gapIndex {
	return &gapIndex{limit: limit, gaps: newGapSet()}
}

// part returns the first part of r, or the last, outside all gaps at version. It is
// empty if there is none.
func (x *gapIndex) part(r kv.Range, version uint64, last bool) kv.Range {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last {
		return x.gaps.last(r, version)
	}
	return x.gaps.first(r, version)
}

// noteWrites is called by the write transaction with keys that it has written, in order, before it
// or anybody reads them.
func (x *gapIndex) noteWrites(keys iter.Seq[[]byte]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = true
	x.gaps.trim(keys)
	x.gaps.shrink(x.limit)
}

// publishCommitted is called when the write transaction was applied as version, with the
// gaps it found, which may be nil.
func (x *gapIndex) publishCommitted(version, durable uint64, found *gapSet) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = false
	x.applied = version
	x.publish(found, version, durable)
}

// noteCancel is called when the write transaction was not applied.
func (x *gapIndex) noteCancel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = false
}

// publishRead is called with the gaps that a read-only transaction at version found,
// which may be nil.
func (x *gapIndex) publishRead(version uint64, found *gapSet) {
	if found == nil {
		return
	}

	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.writing && x.applied == version {
		x.publish(found, version, version)
	}
}

// publish adds gaps that are empty since a version. The caller holds x.mu.
func (x *gapIndex) publish(found *gapSet, since, durable uint64) {
	if found == nil {
		return
	}
	x.gaps.addAll(found, since, durable)
	x.gaps.shrink(x.limit)
}

// gapFinder collects the gaps that one transaction finds. Its zero value is ready to use.
type gapFinder struct {
	found *gapSet // nil if there are none

	// The keys an iterator has stepped on since restart.
	seen    int
	samples [][]byte
}

// step counts a key, dead or alive. It is pebble.IterOptions.SkipPoint, the only way
// to see dead keys.
func (f *gapFinder) step(key []byte) bool {
	f.seen++
	if f.seen%sampleEvery == 0 {
		f.samples = append(f.samples, bytes.Clone(key))
	}
	return false
}

func (f *gapFinder) restart() { f.seen, f.samples = 0, f.samples[:0] }

// addGap notes that r holds only dead keys, with some of them as samples.
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
func (f *gapFinder) noteWrites(keys iter.Seq[[]byte]) {
	if f.found != nil {
		f.found.trim(keys)
	}
}
