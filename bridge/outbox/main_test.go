package outbox

import (
	"log/slog"
	"sync/atomic"
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

// testOutbox is an outbox without a connection, and what it counted.
type testOutbox struct {
	*Outbox
	queue      *dispatch.Queue
	dispatcher *dispatch.Dispatcher // on an empty store; it does not run
	returned   map[Reason]*atomic.Int64
	lost       atomic.Int64
	refused    atomic.Int64 // requests whose replies were denied
}

// Denied implements Endpoint.
func (o *testOutbox) Denied(string) { o.refused.Add(1) }

func newTest(t *testing.T) *testOutbox {
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

	o := &testOutbox{returned: map[Reason]*atomic.Int64{}}
	for _, why := range Reasons() {
		o.returned[why] = new(atomic.Int64)
	}
	o.dispatcher = dispatch.New(dispatch.Options{
		DB: db, Keyspace: keyspace, Lanes: 4, MaxBatch: 1024, MaxBatchBytes: 4 << 20, LeaseRoom: fdbpq.MaxMessageSize,
		MaxPending: 16384, MaxPendingBytes: 64 << 20, MaxWaiters: 100, RequestTimeout: 5 * time.Second,
		Warn: func(string, ...any) {}, BatchDone: func(int) {},
		Owns:        func(subjects.Kind, string) bool { return true },
		RequeueLate: func(*dispatch.Queue, fdbpq.OpKind, *fdbpq.Result) {},
	})
	if o.queue, err = o.dispatcher.Queue(subjects.Priority, "jobs"); err != nil {
		t.Fatal(err)
	}

	o.Outbox = New(Config{
		MaxBytes: 16 << 20,
		ID:       "id", Dispatcher: o.dispatcher,
		Stray:    func(*nats.Msg) {},
		Returned: func(why Reason) { o.returned[why].Add(1) },
		Lost:     func(items int) { o.lost.Add(int64(items)) },
		Logger:   slog.New(slog.DiscardHandler),
		Warn:     func(string, ...any) {}, WarnLost: func(string, ...any) {},
	})
	return o
}

// remember acts as if a reply with an item of that size had been sent.
func (o *testOutbox) remember(subject string, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	item := fdbpq.Item{Message: fdbpq.Message{Value: make([]byte, size)}}
	o.addItemLocked(sentItem{sentReply: sentReply{subject: subject, endpoint: o}, Content: Content{Queue: o.queue, Item: item}})
}

// unconfirmed returns how many replies are kept.
func (o *testOutbox) unconfirmed() (n int) {
	for _, c := range o.mu.chunks {
		n += len(c.items) + len(c.replies)
	}
	return n
}
