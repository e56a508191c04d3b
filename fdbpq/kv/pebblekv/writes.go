package pebblekv

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// writes collects what a transaction writes. Its zero value is ready to use.
//
// Pebble can read a batch only through an index, which costs more than the rest of the batch. Most
// transactions read before they write, so the index is made when something is read after a write.
// And Pebble's memtable, a skip list, inserts a key next to the one before it for a fraction of the
// usual cost. So the batch that is applied has its writes in the order of their keys.
type writes struct {
	list   []write
	ranges int // how many of them clear a range
	copies arena
	taken  int     // how many of them takeSet has looked at
	sorted []place // of the first of them, from the last inOrder of all there were

	index   *pebble.Batch // nil before the first read that needs it
	indexed int           // how many of the writes are in index

	fragmented int // how many of the cleared ranges index has prepared for reads
}

// write is one write, in Pebble's terms.
type write struct {
	kind       pebble.InternalKeyKind
	key, value []byte // of a cleared range, its begin and end
}

func (w *writes) set(key, value []byte) { w.add(pebble.InternalKeyKindSet, key, value) }

func (w *writes) clear(key []byte) { w.add(pebble.InternalKeyKindDelete, key, nil) }

func (w *writes) clearRange(begin, end []byte) {
	w.ranges++
	w.add(pebble.InternalKeyKindRangeDelete, begin, end)
}

func (w *writes) add(kind pebble.InternalKeyKind, key, value []byte) {
	w.list = append(w.list, write{kind, w.copies.clone(key), w.copies.clone(value)})
}

// reader returns what shows db with all writes so far. It belongs to w.
func (w *writes) reader(db *pebble.DB) (pebble.Reader, error) {
	if len(w.list) == 0 {
		return db, nil
	}

	if w.index == nil {
		w.index = db.NewIndexedBatch()
	}
	for ; w.indexed < len(w.list); w.indexed++ {
		if err := w.list[w.indexed].addTo(w.index); err != nil {
			return nil, err
		}
	}
	return w.index, nil
}

// fewRanges is how many cleared ranges cost a read less than to prepare them.
const fewRanges = 16

// getter is reader for a single key. Pebble would sort the cleared ranges anew for each key, but an
// iterator leaves them sorted.
func (w *writes) getter(db *pebble.DB) (pebble.Reader, error) {
	reader, err := w.reader(db)
	if err != nil || w.ranges <= fewRanges || w.fragmented == w.ranges {
		return reader, err
	}

	iter, err := w.index.NewIter(nil)
	if err != nil {
		return nil, err
	}
	w.fragmented = w.ranges
	return reader, iter.Close()
}

// takeSet returns, in order, the keys that were set since the last call.
func (w *writes) takeSet() (keys [][]byte) {
	order := w.inOrder(w.taken)
	w.taken = len(w.list)
	keys = make([][]byte, 0, len(order))
	for _, p := range order {
		if w.list[p.number].kind == pebble.InternalKeyKindSet {
			keys = append(keys, w.list[p.number].key)
		}
	}
	return keys
}

// batch returns a batch of all writes, which belongs to the caller.
func (w *writes) batch(db *pebble.DB) *pebble.Batch {
	b := db.NewBatch()
	if w.ranges > 0 { // which have to stay between the writes before them and after them
		for i := range w.list {
			_ = w.list[i].addTo(b) // Without an index it never fails.
		}
		return b
	}
	for _, p := range w.inOrder(0) {
		_ = w.list[p.number].addTo(b)
	}
	return b
}

// place is the place of a write in the order of keys.
type place struct {
	start  uint64 // 8 bytes of its key, where the keys first differ
	number int32  // of the write in the list
}

// inOrder returns the writes from a number on, in the order of their keys, and those of a key in
// their own. Keys of one queue share a long prefix, and places are small: it takes a third of the
// time of comparing and moving the writes themselves.
func (w *writes) inOrder(from int) []place {
	if from == 0 && len(w.sorted) == len(w.list) {
		return w.sorted
	}

	shared := w.sharedPrefix(from)
	order := make([]place, 0, len(w.list)-from)
	for i := range w.list[from:] {
		var start [8]byte
		copy(start[:], w.list[from+i].key[shared:])
		order = append(order, place{binary.BigEndian.Uint64(start[:]), int32(from + i)})
	}
	slices.SortFunc(order, func(a, b place) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Or(bytes.Compare(w.list[a.number].key[shared:], w.list[b.number].key[shared:]), cmp.Compare(a.number, b.number))
	})
	if from == 0 {
		w.sorted = order
	}
	return order
}

// sharedPrefix returns with how many equal bytes all keys from a number on start.
func (w *writes) sharedPrefix(from int) (n int) {
	for i := from; i < len(w.list); i++ {
		first, key := w.list[from].key, w.list[i].key
		if i == from {
			n = len(first)
		}
		if n > len(key) || !bytes.Equal(first[:n], key[:n]) {
			for n = 0; n < min(len(first), len(key)) && first[n] == key[n]; n++ {
			}
		}
	}
	return n
}

func (w *write) addTo(b *pebble.Batch) error {
	switch w.kind {
	case pebble.InternalKeyKindSet:
		return b.Set(w.key, w.value, nil)
	case pebble.InternalKeyKindDelete:
		return b.Delete(w.key, nil)
	default:
		return b.DeleteRange(w.key, w.value, nil)
	}
}

// maxSpareWrites bounds the memory that one transaction leaves to the next, a fifth of what a
// transaction of BenchmarkTransaction takes.
const maxSpareWrites = 4096

// close frees the memory, and returns what the next transaction can use for its list.
func (w *writes) close() (spare []write) {
	if w.index != nil {
		_ = w.index.Close() // It never fails.
	}
	if cap(w.list) <= maxSpareWrites {
		clear(w.list)
		spare = w.list[:0]
	}
	*w = writes{}
	return spare
}
