package pebblekv

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A read of a key or a range that is empty does not walk through what was cleared next to it: a
// purge of many items does not make others slower.
func TestReadsBesideClearedRange(t *testing.T) {
	const keys, most = 10_000, 10
	db := openTestDir(t, t.TempDir(), Options{MinFreeSpace: -1})
	tx := begin(t, db)
	for n := range keys {
		tx.Set(fmt.Appendf(nil, "b/%06d", n), []byte("x"))
	}
	mustCommit(t, tx)
	tx = begin(t, db)
	tx.ClearRange(kv.Range{Begin: []byte("b/"), End: []byte("b0")})
	mustCommit(t, tx)

	before := kv.Range{Begin: []byte("a/"), End: []byte("a0")}
	behind := kv.Range{Begin: []byte("c/"), End: []byte("c0")}
	reads := map[string]func(kv.Reader) error{
		"get": func(r kv.Reader) error { return errOf(r.Get([]byte("a")).Get()) },
		"range": func(r kv.Reader) error {
			return errOf(r.GetRange(before, kv.RangeOptions{}).Get())
		},
		"range in reverse": func(r kv.Reader) error {
			return errOf(r.GetRange(behind, kv.RangeOptions{Reverse: true}).Get())
		},
	}
	for name, read := range reads {
		reading := beginRead(t, db).(*readTransaction)
		must(t, read(reading))
		covered(t, name, reading.iter, most)
		reading.Cancel()

		writing := begin(t, db).(*transaction)
		must(t, read(writing))
		if writing.storeIter != nil { // a get has no iterator
			covered(t, name+" of a transaction that writes", writing.storeIter, most)
		}
		writing.Set([]byte("c/written"), nil)
		writing.Set([]byte("a/written"), nil)
		must(t, read(writing))
		if writing.mergedIter != nil {
			covered(t, name+" of a transaction that wrote", writing.mergedIter, most)
		}
		writing.Cancel()
	}
}

// An empty key is a key like others, and the begin of a range may be one.
func TestEmptyKey(t *testing.T) {
	db := openTestDir(t, t.TempDir(), Options{MinFreeSpace: -1})
	tx := begin(t, db)
	tx.Set(nil, []byte("value"))
	tx.Set([]byte("b"), nil)
	mustCommit(t, tx)

	reading := beginRead(t, db)
	defer reading.Cancel()
	value, err := reading.Get(nil).Get()
	if err != nil || string(value) != "value" {
		t.Errorf("got %q, %v", value, err)
	}
	for _, reverse := range []bool{false, true} {
		all := kv.Range{End: []byte("c")}
		pairs, err := reading.GetRange(all, kv.RangeOptions{Reverse: reverse}).Get()
		if err != nil || len(pairs) != 2 {
			t.Errorf("reverse %v: got %d pairs, %v, want 2", reverse, len(pairs), err)
		}
	}
}

// covered fails if an iterator has met more than most keys in cleared ranges.
func covered(t *testing.T, what string, iter *pebble.Iterator, most uint64) {
	t.Helper()
	if n := iter.Stats().InternalStats.PointsCoveredByRangeTombstones; n > most {
		t.Errorf("%s: met %d cleared keys, want %d at most", what, n, most)
	}
}
