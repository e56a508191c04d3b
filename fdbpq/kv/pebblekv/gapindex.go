package pebblekv

import (
	"bytes"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// knowledge is the gaps that all transactions of a store share. A nil
// *knowledge knows nothing and learns nothing. It is safe for concurrent use.
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

// part returns the first part of r, or the last, that is not known to be empty
// at version. It is empty if there is none.
func (k *knowledge) part(r kv.Range, version uint64, last bool) kv.Range {
	if k == nil {
		return r
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if last {
		return k.gaps.last(r, version)
	}
	return k.gaps.first(r, version)
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
	k.gaps.shrink(k.limit)
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
	k.publish(learnt, version, durable)
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

// observed is called with what a read-only transaction at version learnt, which
// may be nil.
func (k *knowledge) observed(version uint64, learnt *gapSet) {
	if k == nil || learnt == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.writing && k.applied == version {
		k.publish(learnt, version, version)
	}
}

func (k *knowledge) publish(learnt *gapSet, since, durable uint64) {
	if learnt == nil {
		return
	}
	k.gaps.addAll(learnt, since, durable)
	k.gaps.shrink(k.limit)
}

// student is what one transaction learns. Its zero value is ready to use.
type student struct {
	learnt *gapSet // nil if nothing was learnt

	// The run of keys that an iterator has stepped on since restart.
	seen  int
	marks [][]byte
}

// step takes note of a key, dead or alive. It is pebble.IterOptions.SkipPoint,
// the only way to see dead keys.
func (s *student) step(key []byte) bool {
	s.seen++
	if s.seen%markEvery == 0 {
		s.marks = append(s.marks, bytes.Clone(key))
	}
	return false
}

func (s *student) restart() { s.seen, s.marks = 0, s.marks[:0] }

// learn takes note that r holds no key but some dead ones, which may have marks.
func (s *student) learn(r kv.Range, marks ...[]byte) {
	if r.Empty() {
		return
	}
	if s.learnt == nil {
		s.learnt = newGapSet()
	}
	s.learnt.add(gap{begin: bytes.Clone(r.Begin), end: bytes.Clone(r.End)}, marks...)
}

// wrote takes note that key is no longer known to be absent.
func (s *student) wrote(key []byte) {
	if s.learnt != nil {
		s.learnt.trim(key)
	}
}
