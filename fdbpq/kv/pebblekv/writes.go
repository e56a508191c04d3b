package pebblekv

import (
	"bytes"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// writes collects what a transaction writes. Its zero value is ready to use.
//
// Pebble's memtable is a skip list. It inserts a key next to the one before it for a fraction of
// the usual cost, so the batch is applied in the order of its keys. Sorting happens little by
// little, in runs: a read makes a run of the writes since the last one, and runs of similar length
// are merged, so each write is moved only a few times.
//
// The runs also answer the reads of the transaction. Only a read of a range with writes in it, and
// every read once a range was cleared, goes through an index of Pebble's. Building that costs more
// than the rest of the batch.
type writes struct {
	list   []write
	ranges int // how many of them clear a range
	copies arena

	runs   [][]int32 // numbers of the first inRuns writes, each run in the order of keys
	inRuns int

	index      *pebble.Batch // nil before the first read that needs it
	indexed    int           // how many of the writes are in index
	fragmented int           // how many of the cleared ranges index has prepared for reads
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

// reader returns a reader of db with all writes so far. It belongs to w.
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

// fewRanges is up to how many cleared ranges a read is cheaper without preparing them.
const fewRanges = 16

// getter is reader for single keys.
func (w *writes) getter(db *pebble.DB) (*pebble.Batch, error) {
	reader, err := w.reader(db)
	if err != nil || w.ranges <= fewRanges || w.fragmented == w.ranges {
		return reader, err
	}

	// Pebble would sort the cleared ranges again for each key. An iterator leaves them sorted.
	iter, err := w.index.NewIter(nil)
	if err != nil {
		return nil, err
	}

	w.fragmented = w.ranges
	return reader, iter.Close()
}

// sortNew makes a run of the writes since the last call. It returns the keys that were set since
// then, in order.
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

	// Each run stays at least twice as long as the next one, so there are only a few.
	w.runs = append(w.runs, run)
	for last := len(w.runs) - 1; last > 0; last-- {
		if len(w.runs[last-1]) >= 2*len(w.runs[last]) {
			break
		}
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

// sorted returns the numbers of the writes from number from on, in the order of their keys. Writes
// of the same key stay in the order they were made.
func (w *writes) sorted(from int) []int32 {
	run := make([]int32, len(w.list)-from)
	for i := range run {
		run[i] = int32(from + i)
	}

	slices.SortStableFunc(run, func(a, b int32) int {
		return bytes.Compare(w.list[a].key, w.list[b].key)
	})
	return run
}

// merged merges two runs. Writes of the same key stay in the order they were made.
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

// before returns how many writes of a run come before key, or up to and including it if orAt.
func (w *writes) before(run []int32, key []byte, orAt bool) int {
	is := func(i int) bool {
		order := bytes.Compare(w.list[run[i]].key, key)
		return order < 0 || orAt && order == 0
	}

	// Doubling finds a place near the start of the run with few comparisons.
	end := 1
	for end <= len(run) && is(end-1) {
		end *= 2
	}

	known := end / 2
	rest := min(end, len(run)) - known
	return known + sort.Search(rest, func(i int) bool { return !is(known + i) })
}

// touch reports whether a write may have changed a key of r. All writes must be in runs.
func (w *writes) touch(r kv.Range) bool {
	return w.ranges > 0 || slices.ContainsFunc(w.runs, func(run []int32) bool {
		n := w.before(run, r.Begin, false)
		return n < len(run) && bytes.Compare(w.list[run[n]].key, r.End) < 0
	})
}

// newest returns the last write of key, or nil. All writes must be in runs, and none may clear a
// range.
func (w *writes) newest(key []byte) *write {
	for _, run := range slices.Backward(w.runs) {
		if n := w.before(run, key, true); n > 0 && bytes.Equal(w.list[run[n-1]].key, key) {
			return &w.list[run[n-1]]
		}
	}
	return nil
}

// batch returns a batch of all writes. It belongs to the caller. All writes must be in runs.
func (w *writes) batch(db *pebble.DB) *pebble.Batch {
	b := db.NewBatch()

	// A cleared range has to stay between the writes before it and after it.
	if w.ranges > 0 {
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

// maxSpareWrites bounds the memory that one transaction leaves to the next, in writes. It is a
// fifth of what a lane's usual pushes and pops take.
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

const (
	arenaBlock = 4 << 10 // bytes

	// maxShared is the longest slice, in bytes, that shares a block with others. A longer one gets
	// its own memory, so that little is wasted at the end of a block.
	maxShared = arenaBlock / 8
)

// arena copies many small slices with few allocations: 570 instead of 920 in a transaction of a
// lane's usual pushes and pops, and 9 % less processor time. Each copy belongs to its caller.
type arena struct{ free []byte }

// clone returns a copy of b. It is never nil.
func (a *arena) clone(b []byte) []byte {
	n := len(b)
	if n == 0 {
		return []byte{}
	}
	if n > maxShared {
		return bytes.Clone(b)
	}

	if n > len(a.free) {
		a.free = make([]byte, arenaBlock)
	}

	c := a.free[:n:n]
	a.free = a.free[n:]
	copy(c, b)
	return c
}
