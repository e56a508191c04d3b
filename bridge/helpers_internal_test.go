package bridge

import (
	"log/slog"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// newTestBridge returns a bridge on an empty store that does not run.
func newTestBridge(t testing.TB) *Bridge {
	t.Helper()
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		t.Fatal(err)
	}
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	db := memkv.New(memkv.Options{})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := New(Options{DB: db, Keyspace: keyspace, Grammar: grammar, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
