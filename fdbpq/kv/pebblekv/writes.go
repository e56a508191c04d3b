package pebblekv

import (
	"bytes"
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
	taken  int // how many of them takeSet has looked at

	index   *pebble.Batch // nil before the first read that needs it
	indexed int           // how many of the writes are in index

	fragmented int // how many of the cleared ranges index has prepared for reads
}

// write is one write, in Pebble's terms.
type write struct {
	kind       pebble.InternalKeyKind
	number     int32  // among the writes of its transaction
	key, value []byte // of a cleared range, its begin and end
}

func (w *writes) set(key, value []byte) { w.add(pebble.InternalKeyKindSet, key, value) }

func (w *writes) clear(key []byte) { w.add(pebble.InternalKeyKindDelete, key, nil) }

func (w *writes) clearRange(begin, end []byte) {
	w.ranges++
	w.add(pebble.InternalKeyKindRangeDelete, begin, end)
}

func (w *writes) add(kind pebble.InternalKeyKind, key, value []byte) {
	w.list = append(w.list, write{kind, int32(len(w.list)), w.copies.clone(key), w.copies.clone(value)})
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
	if w.taken == 0 && w.index == nil {
		w.sort() // usually all is written by now, and what is sorted here need not be again
	}
	some := w.list[w.taken:]
	keys = make([][]byte, 0, len(some))
	w.taken = len(w.list)
	for i := range some {
		if some[i].kind == pebble.InternalKeyKindSet {
			keys = append(keys, some[i].key)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// sort brings all writes into the order of their keys, and those of a key into their own. A cleared
// range has to stay between the writes before it and after it.
func (w *writes) sort() {
	if w.ranges > 0 {
		return
	}
	slices.SortFunc(w.list, func(a, b write) int {
		if order := bytes.Compare(a.key, b.key); order != 0 {
			return order
		}
		return int(a.number - b.number)
	})
}

// batch returns a batch of all writes, which belongs to the caller.
func (w *writes) batch(db *pebble.DB) *pebble.Batch {
	w.sort()
	b := db.NewBatch()
	for i := range w.list {
		_ = w.list[i].addTo(b) // Without an index it never fails.
	}
	return b
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
