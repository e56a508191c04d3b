package dispatch

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testOptions returns the options of a Dispatcher with one lane.
func testOptions(t testing.TB, db kv.Database) Options {
	t.Helper()
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(t, err)

	return Options{
		DB:       db,
		Keyspace: keyspace,
		Limits: Limits{
			Lanes:           1,
			MaxBatch:        1024,
			MaxBatchBytes:   4 << 20,
			MaxPending:      16384,
			MaxPendingBytes: 64 << 20,
			MaxWaiters:      1000,
			RequestTimeout:  5 * time.Second,
		},
		Warn:      func(string, ...any) {},
		BatchDone: func(int) {},
		RequeueLate: func(*Queue, fdbpq.OpKind, *fdbpq.Result) {
			t.Error("a request was answered before its batch had ended")
		},
	}
}

func closeDB(t testing.TB, db kv.Database) {
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// newTest returns a Dispatcher with one lane, on an empty store.
func newTest(t testing.TB) *Dispatcher {
	t.Helper()
	db := memkv.New(memkv.Options{})
	t.Cleanup(func() { closeDB(t, db) })
	o := testOptions(t, db)
	o.RequestTimeout = time.Minute

	return New(o)
}

// numbered is a Replier of one request, which has a number.
type numbered struct {
	Replier
	n uint64
}

// numberedWaiter is a numbered WaitingReplier.
type numberedWaiter struct {
	WaitingReplier
	n uint64
}

// number returns a Replier of one request, from which numberOf tells its number.
func number(to Replier, n uint64) Replier {
	if waits, ok := to.(WaitingReplier); ok {
		return numberedWaiter{waits, n}
	}
	return numbered{to, n}
}

func numberOf(r *Request) uint64 {
	switch replier := r.Replier.(type) {
	case numbered:
		return replier.n
	case numberedWaiter:
		return replier.n
	}
	return 0
}
