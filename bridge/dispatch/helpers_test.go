package dispatch

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// newTest returns a Dispatcher with one lane, on an empty store.
func newTest(t testing.TB) *Dispatcher {
	t.Helper()
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
	return New(Options{
		DB: db, Keyspace: keyspace, Lanes: 1, MaxBatch: 1024, MaxBatchBytes: 4 << 20,
		MaxPending: 16384, MaxPendingBytes: 64 << 20, RequestTimeout: time.Minute,
		Warn: func(string, ...any) {}, BatchDone: func(int) {},
	})
}
