package pebblekv

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// writes collects what a transaction writes. Its zero value is ready to use.
//
// Pebble's memtable, a skip list, inserts a key next to the one before it for a fraction of the
// usual cost, so the batch that is applied has its writes in the order of their keys. They are put
// in order bit by bit, in runs: what was written since the last read becomes a run, and runs of
// similar length are merged, so each write is moved only a few times. The runs also say what a read
// of the transaction sees of them. Only a range in which something was written, and anything once a
// range is cleared, is read through an index of Pebble's, which costs more than the rest of the batch.
type writes struct {
	list   []write
	ranges int // how many of them clear a range
	copies arena
	runs   [][]int32 // numbers of the first inRuns of them, each run in the order of keys
	inRuns int

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
func (w *writes) reader(db *pebble.DB) (*pebble.Batch, error) {
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
func (w *writes) getter(db *pebble.DB) (*pebble.Batch, error) {
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

// sortNew puts what was written since the last call in order, as a run. It returns, in order, the
// keys of these writes that were set.
func (w *writes) sortNew() (set [][]byte) {
	if w.inRuns == len(w.list) {
		return nil
	}

	run := w.sorted(w.inRuns)
	w.inRuns = len(w.list)
	set = make([][]byte, 0, len(run))
	for _, n := range run {
		if w.list[n].kind == pebble.InternalKeyKindSet {
			set = append(set, w.list[n].key)
		}
	}

	w.runs = append(w.runs, run)
	for last := len(w.runs) - 1; last > 0 && len(w.runs[last-1]) < 2*len(w.runs[last]); last-- {
		w.mergeLast()
	}
	return set
}

// mergeLast merges the last two runs.
func (w *writes) mergeLast() {
	last := len(w.runs) - 1
	w.runs[last-1] = w.merged(w.runs[last-1], w.runs[last])
	w.runs = w.runs[:last]
}

// place is the place of a write in the order of keys.
type place struct {
	start  uint64 // 8 bytes of its key, where the keys first differ
	number int32  // of the write in the list
}

// sorted returns the numbers of the writes from one on in the order of their keys, and those of a
// key in their own. Keys of one queue share a long prefix, so places, which are small, are sorted
// first. Keys whose places are equal, such as entries for the same time, are usually written in
// order.
func (w *writes) sorted(from int) []int32 {
	shared := w.sharedPrefix(from)
	order := make([]place, 0, len(w.list)-from)
	for i := range w.list[from:] {
		var start [8]byte
		copy(start[:], w.list[from+i].key[shared:])
		order = append(order, place{binary.BigEndian.Uint64(start[:]), int32(from + i)})
	}
	slices.SortFunc(order, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.number, b.number))
	})

	byKey := func(a, b int32) int {
		return cmp.Or(bytes.Compare(w.list[a].key[shared:], w.list[b].key[shared:]), cmp.Compare(a, b))
	}
	run := make([]int32, len(order))
	equal := 0 // where the places begin that are equal to that of i
	for i, p := range order {
		run[i] = p.number
		if p.start != order[equal].start {
			equal = i
		}
		if end := i+1 == len(order) || order[i+1].start != p.start; end && i > equal && !slices.IsSortedFunc(run[equal:i+1], byKey) {
			slices.SortFunc(run[equal:i+1], byKey)
		}
	}
	return run
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

// merged returns the writes of two runs, of which one is older, in one.
func (w *writes) merged(older, newer []int32) []int32 {
	all := make([]int32, 0, len(older)+len(newer))
	for len(older) > 0 && len(newer) > 0 {
		n := w.before(older, w.list[newer[0]].key, true)
		all = append(all, older[:n]...)
		if older = older[n:]; len(older) == 0 {
			break
		}
		n = w.before(newer, w.list[older[0]].key, false)
		all = append(all, newer[:n]...)
		newer = newer[n:]
	}
	return append(append(all, older...), newer...)
}

// before returns how many writes of a run come before a key, or before those after it. It looks at
// few of them if that are few, or if those of another key follow as a whole.
func (w *writes) before(run []int32, key []byte, orAt bool) int {
	is := func(i int) bool {
		order := bytes.Compare(w.list[run[i]].key, key)
		return order < 0 || orAt && order == 0
	}
	end := 1
	for end <= len(run) && is(end-1) {
		end *= 2
	}
	n := end / 2 // of which it is known
	return n + sort.Search(min(end, len(run))-n, func(i int) bool { return !is(n + i) })
}

// touch reports whether a write may have changed what is in a range. All must be in runs.
func (w *writes) touch(r kv.Range) bool {
	return w.ranges > 0 || slices.ContainsFunc(w.runs, func(run []int32) bool {
		n := w.before(run, r.Begin, false)
		return n < len(run) && bytes.Compare(w.list[run[n]].key, r.End) < 0
	})
}

// newest returns the last write of a key, nil if there is none. All must be in runs, and none may
// clear a range.
func (w *writes) newest(key []byte) *write {
	for _, run := range slices.Backward(w.runs) {
		if n := w.before(run, key, true); n > 0 && bytes.Equal(w.list[run[n-1]].key, key) {
			return &w.list[run[n-1]]
		}
	}
	return nil
}

// batch returns a batch of all writes, which belongs to the caller. All must be in runs.
func (w *writes) batch(db *pebble.DB) *pebble.Batch {
	b := db.NewBatch()
	if w.ranges > 0 { // which have to stay between the writes before them and after them
		for i := range w.list {
			_ = w.list[i].addTo(b) // Without an index it never fails.
		}
		return b
	}
	for len(w.runs) > 1 {
		w.mergeLast()
	}
	for _, n := range w.runs[0] {
		_ = w.list[n].addTo(b)
	}
	return b
}

// read returns the value that a write leaves under its key, nil for none.
func (w *write) read(copies *arena) []byte {
	if w.kind != pebble.InternalKeyKindSet {
		return nil
	}
	return copies.clone(w.value)
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

// maxSpareWrites bounds the memory that one transaction leaves to the next: a fifth of what a lane's
// usual pushes and pops take.
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
