package kv

import (
	"bytes"
	"slices"

	"github.com/google/btree"
)

// Written is what a blind transaction has written so far, for engines whose reads do not see it:
// see BeginOptions.Blind. The zero value is nothing.
type Written struct {
	latest [][]byte // keys that are not in sorted yet: most transactions never need it
	bytes  []byte   // of all keys
	sorted *btree.BTreeG[[]byte]
	ranges []Range
}

// Key notes that a key is written. It does not keep key.
func (w *Written) Key(key []byte) {
	at := len(w.bytes)
	w.bytes = append(w.bytes, key...)
	w.latest = append(w.latest, w.bytes[at:len(w.bytes):len(w.bytes)])
}

// Range notes that a range is written. It does not keep r.
func (w *Written) Range(r Range) {
	w.ranges = append(w.ranges, r.Clone())
}

// Any reports whether anything is written.
func (w *Written) Any() bool { return len(w.bytes)+len(w.ranges) > 0 }

// Within reports whether any key of r is written.
func (w *Written) Within(r Range) (found bool) {
	if w.sorted == nil {
		w.sorted = btree.NewG(32, func(a, b []byte) bool { return bytes.Compare(a, b) < 0 })
	}
	for _, key := range w.latest {
		w.sorted.ReplaceOrInsert(key)
	}
	w.latest = w.latest[:0]

	w.sorted.AscendRange(r.Begin, r.End, func([]byte) bool {
		found = true
		return false
	})
	return found || slices.ContainsFunc(w.ranges, func(other Range) bool {
		return bytes.Compare(r.Begin, other.End) < 0 && bytes.Compare(other.Begin, r.End) < 0
	})
}
