package pebblekv

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// seeded returns a source of random numbers, from the environment variable
// PEBBLEKV_SEED if it is set, and says how to get it again.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("PEBBLEKV_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("again: PEBBLEKV_SEED=%d go test ./fdbpq/kv/pebblekv -run '^%s$'", seed, t.Name())
	return rand.New(rand.NewPCG(seed, 0))
}

// history is the model of the gap index: all versions of a store of
// a few keys, with nothing left out.
type history struct {
	keys     [][]byte
	versions []map[string]bool // keys present, by version
}

func newHistory(n int) *history {
	h := &history{versions: []map[string]bool{{}}}
	for i := range n {
		h.keys = append(h.keys, fmt.Appendf(nil, "%03d", i))
	}

	return h
}

func (h *history) newest() uint64 { return uint64(len(h.versions) - 1) }

func (h *history) emptyAt(r kv.Range, version uint64) bool {
	for key := range h.versions[version] {
		if key >= string(r.Begin) && key < string(r.End) {
			return false
		}
	}
	return true
}

func (h *history) randomRange(rng *rand.Rand) kv.Range {
	i, j := rng.IntN(len(h.keys)), rng.IntN(len(h.keys))
	return kv.Range{Begin: h.keys[min(i, j)], End: h.keys[max(i, j)]}
}

// randomKeys are a few keys in order, some of them more than once.
func (h *history) randomKeys(rng *rand.Rand) (keys [][]byte) {
	for range 1 + rng.IntN(8) {
		keys = append(keys, h.keys[rng.IntN(len(h.keys))])
	}

	slices.SortFunc(keys, bytes.Compare)
	return keys
}

// run is a longest range around a key that holds nothing at a version.
func (h *history) run(key []byte, version uint64) kv.Range {
	i, _ := slices.BinarySearchFunc(h.keys, key, bytes.Compare)
	lo, hi := i, i

	for lo > 0 && !h.versions[version][string(h.keys[lo-1])] {
		lo--
	}

	for hi < len(h.keys)-1 && !h.versions[version][string(h.keys[hi])] {
		hi++
	}

	return kv.Range{Begin: h.keys[lo], End: h.keys[hi]}
}

// After any write, cancel, read at an old version or eviction, every gap is empty at its own
// version and at the newest ones.
func TestGapIndexAgainstHistory(t *testing.T) {
	rng := seeded(t)
	h := newHistory(60)
	k := newGapIndex(2000)
	found := false

	for range harness.Times(2_000, 20_000) {
		switch rng.IntN(4) {
		case 0, 1:
			writeRandomly(h, k, rng)
		case 2:
			observeRandomly(h, k, rng, h.newest()-min(h.newest(), uint64(rng.IntN(3))))
		case 3:
			checkPart(t, h, k, rng)
		}

		checkGaps(t, h, k)

		found = found || k.gaps.gaps.Len() > 0
		if k.gaps.bytes > k.limit {
			t.Fatalf("%d bytes, limit %d", k.gaps.bytes, k.limit)
		}
	}
	if !found {
		t.Error("nothing was found, so nothing was tested")
	}
}

// observeRandomly is a read-only transaction.
func observeRandomly(h *history, k *gapIndex, rng *rand.Rand, version uint64) {
	r := h.run(h.keys[rng.IntN(len(h.keys))], version)
	if h.emptyAt(r, version) {
		var s gapFinder
		s.addGap(r, bytes.Clone(r.Begin))
		k.publishRead(version, s.found)
	}
}

// writeRandomly is a write transaction, which may be cancelled.
func writeRandomly(h *history, k *gapIndex, rng *rand.Rand) {
	next := maps.Clone(h.versions[h.newest()])
	h.versions = append(h.versions, next)
	var s gapFinder

	for range rng.IntN(6) {
		key := h.keys[rng.IntN(len(h.keys))]
		switch rng.IntN(4) {
		case 0:
			keys := h.randomKeys(rng)
			for _, key := range keys {
				next[string(key)] = true
			}

			// Their memory belongs to the transaction, and is used for other things afterwards.
			for i := range keys {
				keys[i] = bytes.Clone(keys[i])
			}

			k.noteWrites(keys)
			s.noteWrites(keys)

			for _, key := range keys {
				clear(key)
			}
		case 1:
			delete(next, string(key))
		case 2:
			if r := h.run(key, h.newest()); h.emptyAt(r, h.newest()) {
				s.addGap(r, bytes.Clone(r.Begin), bytes.Clone(key))
			}
		case 3: // Somebody reads meanwhile.
			observeRandomly(h, k, rng, h.newest()-1)
		}
	}

	if rng.IntN(4) == 0 {
		h.versions = h.versions[:h.newest()]
		k.noteCancel()
		return
	}

	lag := min(h.newest(), uint64(rng.IntN(3)))
	k.publishCommitted(h.newest(), h.newest()-lag, s.found)
}

func checkPart(t *testing.T, h *history, k *gapIndex, rng *rand.Rand) {
	t.Helper()
	r := h.randomRange(rng)
	version := h.newest() - min(h.newest(), uint64(rng.IntN(3)))

	first, last := k.part(r, version, false), k.part(r, version, true)
	if !h.emptyAt(kv.Range{Begin: r.Begin, End: first.Begin}, version) {
		t.Fatalf("version %d: keys of %s were skipped before %s", version, r, first)
	}
	if !h.emptyAt(kv.Range{Begin: last.End, End: r.End}, version) {
		t.Fatalf("version %d: keys of %s were skipped after %s", version, r, last)
	}
}

func checkGaps(t *testing.T, h *history, k *gapIndex) {
	t.Helper()
	var end []byte
	size := 0

	k.gaps.gaps.Ascend(func(g gap) bool {
		if bytes.Compare(g.begin, end) < 0 || bytes.Compare(g.begin, g.end) >= 0 {
			t.Fatalf("gap %s follows one that ends at %s", g.begin, end)
		}

		end = g.end
		size += len(g.begin) + len(g.end) + gapOverhead
		oldest := max(g.since, h.newest()-min(h.newest(), 2))

		for version := oldest; version <= h.newest(); version++ {
			if !h.emptyAt(kv.Range{Begin: g.begin, End: g.end}, version) {
				t.Fatalf("gap [%s, %s) since %d is not empty at %d",
					g.begin, g.end, g.since, version)
			}
		}

		return true
	})

	k.gaps.samples.Ascend(func(key []byte) bool {
		size += len(key) + sampleOverhead
		if _, ok := k.gaps.at(key); !ok {
			t.Fatalf("sample %s is in no gap", key)
		}

		return true
	})
	if size != k.gaps.bytes {
		t.Fatalf("takes %d bytes, counted %d", size, k.gaps.bytes)
	}
}

// A reader who lags behind the last pop profits from the pops before it.
func TestLaggingReader(t *testing.T) {
	k := newGapIndex(gapIndexSize)
	all := kv.Range{Begin: []byte("a"), End: []byte("z")}
	popped := [][]byte{[]byte("a"), []byte("d"), []byte("g"), []byte("k"), []byte("p")}

	for i, key := range popped[1:] {
		var s gapFinder
		s.addGap(kv.Range{Begin: popped[0], End: key}, key)
		version := uint64(i + 1)
		k.publishCommitted(version, version-1, s.found)

		if got := k.part(all, version, false); !bytes.Equal(got.Begin, key) {
			t.Errorf("a reader at version %d begins at %s, not at %s", version, got.Begin, key)
		}
		if got := k.part(all, version-1, false); !bytes.Equal(got.Begin, popped[i]) {
			t.Errorf("a reader one version behind %d begins at %s, not at %s",
				version, got.Begin, popped[i])
		}
	}

	if n := k.gaps.gaps.Len(); n != 2 {
		t.Errorf("%d gaps, not one for the durable versions and one for the last", n)
	}
}

// Transactions with many clears in a row read the same from a store as from a map.
func TestReadsWithGaps(t *testing.T) {
	rng := seeded(t)
	db := openTest(t, vfs.NewMem(), Options{})
	model := map[string]string{}

	for i := range harness.Times(200, 2000) {
		tx := begin(t, db)
		mine := maps.Clone(model)

		for range 1 + rng.IntN(3) {
			changeRandomly(tx, mine, rng)
			compareRandomRange(t, tx, mine, rng)
		}

		if rng.IntN(4) == 0 {
			tx.Cancel()
		} else {
			mustCommit(t, tx)
			model = mine
		}

		read := beginRead(t, db)
		compareRandomRange(t, read, model, rng)

		read.Cancel()
		if i == 150 && db.store.gapIndex.gaps.gaps.Len() == 0 {
			t.Error("nothing was found, so nothing was tested")
		}
	}
}

const manyKeys = 2000

func manyKey(i int) []byte { return fmt.Appendf(nil, "%04d", i) }

// changeRandomly sets one key, or sets or clears many keys in a row, one by one or as a range.
func changeRandomly(tx kv.Transaction, model map[string]string, rng *rand.Rand) {
	const setOne, setMany, clearRange, kinds = 0, 1, 4, 5 // the others clear one by one
	from, kind := rng.IntN(manyKeys), rng.IntN(kinds)
	to := min(manyKeys, from+rng.IntN(300))

	switch kind {
	case setOne:
		to = from + 1
	case clearRange:
		tx.ClearRange(kv.Range{Begin: manyKey(from), End: manyKey(to)})
	}

	for i := from; i < to; i++ {
		key := manyKey(i)
		if kind <= setMany {
			model[string(key)] = strconv.Itoa(rng.IntN(1000))
			tx.Set(key, []byte(model[string(key)]))
			continue
		}

		if kind != clearRange {
			tx.Clear(key)
		}

		delete(model, string(key))
	}
}

func compareRandomRange(t *testing.T, reader kv.Reader, model map[string]string, rng *rand.Rand) {
	t.Helper()
	i, j := rng.IntN(manyKeys), rng.IntN(manyKeys+1)
	r := kv.Range{Begin: manyKey(min(i, j)), End: manyKey(max(i, j))}
	o := kv.RangeOptions{Limit: rng.IntN(3) * rng.IntN(100), Reverse: rng.IntN(2) == 0}

	want := slices.DeleteFunc(slices.Sorted(maps.Keys(model)), func(key string) bool {
		return key < string(r.Begin) || key >= string(r.End)
	})
	if o.Reverse {
		slices.Reverse(want)
	}

	if o.Limit > 0 {
		want = want[:min(o.Limit, len(want))]
	}

	pairs, err := reader.GetRange(r, o).Get()
	if err != nil || len(pairs) != len(want) {
		t.Fatalf("range %s %+v: %d pairs, %v, want %d", r, o, len(pairs), err, len(want))
	}

	for i, pair := range pairs {
		if string(pair.Key) != want[i] || string(pair.Value) != model[want[i]] {
			t.Fatalf("range %s %+v: pair %d is %s=%s, want %s=%s",
				r, o, i, pair.Key, pair.Value, want[i], model[want[i]])
		}
	}
}

// A queue that is filled and emptied over and over has its items where those
// before them were. It is in few gaps all the same.
func TestGapsOfRefilledQueue(t *testing.T) {
	db := openTest(t, vfs.NewMem(), Options{})
	const items, batch = 1000, 100
	whole := kv.Range{Begin: []byte("a"), End: []byte("b")}

	for round := range 20 { // with 20 dead keys between two items no gap is worth it yet
		for from := 0; from < items; from += batch {
			tx := begin(t, db)
			for i := from; i < from+batch; i++ {
				tx.Set(fmt.Appendf(nil, "a%04d-%02d", i, round), nil)
			}

			mustCommit(t, tx)
		}

		if n := db.store.gapIndex.gaps.gaps.Len(); n > items/20 {
			t.Fatalf("%d gaps between %d items in round %d", n, items, round)
		}

		for range items / batch {
			tx := begin(t, db)
			pairs, err := tx.GetRange(whole, kv.RangeOptions{Limit: batch}).Get()
			if err != nil || len(pairs) != batch {
				t.Fatalf("%d items, %v", len(pairs), err)
			}

			for _, pair := range pairs {
				tx.Clear(pair.Key)
			}

			mustCommit(t, tx)
		}
	}
}

// A write into a gap that begins at the very first key leaves the part before that key a gap.
func TestGapFromTheStart(t *testing.T) {
	db := openTestDir(t, t.TempDir(), Options{})
	tx, err := db.Begin(t.Context(), kv.BeginOptions{})
	must(t, err)

	tx.ClearRange(kv.Range{End: []byte("b")})
	tx.ClearRange(kv.Range{Begin: []byte("b"), End: []byte("c")})
	tx.ClearRange(kv.Range{Begin: []byte("c"), End: []byte("d")})
	index := tx.(*transaction).store.gapIndex
	mustCommit(t, tx)

	mustSet(t, db, "cc", "1")
	if n := index.gaps.gaps.Len(); n != 1 {
		t.Errorf("%d gaps: want the one before the key", n)
	}
}
