package peers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTest returns peers of a bridge that is not connected and whose dispatcher does not run.
func newTest(t *testing.T) *Peers {
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

	dispatcher := dispatch.New(dispatch.Options{
		DB: db, Keyspace: keyspace, Lanes: 4, MaxBatch: 1024, MaxBatchBytes: 4 << 20, LeaseRoom: fdbpq.MaxMessageSize,
		MaxPending: 16384, MaxPendingBytes: 64 << 20, MaxWaiters: 100, RequestTimeout: 5 * time.Second,
		Warn: func(string, ...any) {}, BatchDone: func(int) {},
		Owns:        func(subjects.Kind, string) bool { return true },
		RequeueLate: func(*dispatch.Queue, fdbpq.OpKind, *fdbpq.Result) {},
	})
	return New(Config{
		Self:       Self{ID: "self"},
		Dispatcher: dispatcher,
		MaxPending: 16384, MaxWaiters: 100, RequestTimeout: 5 * time.Second,
		Conn:      func() *nats.Conn { return nil },
		Online:    func() bool { return false },
		Flush:     func(context.Context) error { return nats.ErrDisconnected },
		Receive:   func(*nats.Msg, Origin) {},
		Cancel:    func(string) {},
		Forwarded: func() {},
		Logger:    slog.New(slog.DiscardHandler),
		Warn:      func(string, ...any) {},
	})
}
