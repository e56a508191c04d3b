package pebblekv

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Counters add up, however many there are, and the store remembers only some.
func TestManyCounters(t *testing.T) {
	db := openTest(t, vfs.NewMem(), Options{})
	const keys, bound = 20_000, 1 << 20
	db.store.counters = newCounterCache(bound)

	for _, batch := range []int{1000, keys} {
		for from := 0; from < keys; from += batch {
			tx := begin(t, db)
			for i := from; i < min(from+batch, keys); i++ {
				tx.Add(fmt.Appendf(nil, "%06d", i), 1)
			}

			mustCommit(t, tx)
			if n := db.store.counters.recent.Size(); n > bound/2 {
				t.Fatalf("%d bytes are remembered", n)
			}
		}
	}

	for i := 0; i < keys; i += harness.Times(16, 1) {
		value, err := get(db, fmt.Sprintf("%06d", i))
		if err != nil || value != string(binary.LittleEndian.AppendUint64(nil, 2)) {
			t.Fatalf("key %d is %q, %v", i, value, err)
		}
	}
}

// Adds after many cleared ranges are quick, because the ranges are sorted once.
func TestAddsAfterClearedRanges(t *testing.T) {
	db := openTest(t, vfs.NewMem(), Options{})
	tx := begin(t, db)
	const keys = 1000

	for i := range keys {
		tx.ClearRange(kv.SingleKey(fmt.Appendf(nil, "m%06d", i)))
	}

	for i := range keys {
		tx.Add(fmt.Appendf(nil, "z%06d", i), 1)
	}
	if n := tx.(*transaction).writes.fragmented; n != keys {
		t.Errorf("%d ranges of %d are kept in order", n, keys)
	}

	tx.ClearRange(kv.SingleKey([]byte("z000001")))
	tx.Add([]byte("z000001"), 5)
	mustCommit(t, tx)

	value, err := get(db, "z000001")
	if err != nil || value != string(binary.LittleEndian.AppendUint64(nil, 5)) {
		t.Errorf("%q, %v: want 5", value, err)
	}
}
