package pebblekv

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/testenv/race"
)

// More keys are added to than the store remembers, in small and in large transactions.
func TestManyCounters(t *testing.T) {
	db := openTest(t, vfs.NewMem(), Options{})
	const keys = maxCounters*3/2 + 1
	for _, batch := range []int{1000, keys} {
		for from := 0; from < keys; from += batch {
			tx := begin(t, db)
			for i := from; i < min(from+batch, keys); i++ {
				tx.Add(fmt.Appendf(nil, "%06d", i), 1)
			}
			mustCommit(t, tx)
			if n := len(db.store.counters); n > max(maxCounters, batch) {
				t.Fatalf("%d keys are remembered", n)
			}
		}
	}

	for i := 0; i < keys; i += race.Times(1, 16) {
		value, err := get(db, fmt.Sprintf("%06d", i))
		if err != nil || value != string(binary.LittleEndian.AppendUint64(nil, 2)) {
			t.Fatalf("key %d is %q, %v", i, value, err)
		}
	}
}
