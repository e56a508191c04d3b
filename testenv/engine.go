package testenv

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// Engine is a kind of store that tests can run on.
type Engine struct {
	// Name is the name of subtests.
	Name string
	// Open opens an empty store, which is closed when the test ends.
	Open func(t testing.TB) kv.Database
}

// Each runs a test on every engine, as subtests. Those on an engine that this machine does not have
// are skipped: see FDB.
func Each(t *testing.T, test func(t *testing.T, e Engine)) {
	for _, e := range []Engine{Mem(), Pebble(), {Name: "fdb", Open: FDB}} {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}

// Mem is a store in memory.
func Mem() Engine {
	return Engine{Name: "mem", Open: func(t testing.TB) kv.Database {
		db := memkv.New(memkv.Options{})
		closeLater(t, db)
		return db
	}}
}

// Pebble is the embedded store, in a temporary folder.
func Pebble() Engine {
	return Engine{Name: "pebble", Open: func(t testing.TB) kv.Database {
		db, err := pebblekv.Open(t.TempDir(), pebblekv.Options{Logger: logger(t)})
		if err != nil {
			t.Fatalf("testenv: open the store: %v", err)
		}
		closeLater(t, db)
		return db
	}}
}

func closeLater(t testing.TB, db kv.Database) {
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("testenv: close the store: %v", err)
		}
	})
}
