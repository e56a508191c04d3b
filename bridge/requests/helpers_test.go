package requests

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decoded returns what a message asks for, whose subject says r.
func decoded(h *Handler, r subjects.Request, m *nats.Msg) (*request, error) {
	q := newRequest(h, r, m)
	return q, q.decode(m)
}

// newRequest returns the request of a message, which is not decoded yet.
func newRequest(h *Handler, r subjects.Request, m *nats.Msg) *request {
	c := &replier{h: h, verb: &verbs[r.Verb], reply: m.Reply}
	return &request{replier: c, parsed: r}
}

func testKeyspace(t testing.TB) *fdbpq.Keyspace {
	t.Helper()
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(t, err)
	return keyspace
}

// newTestDispatcher returns a dispatcher for an empty store. It accepts requests, but does not run
// them.
func newTestDispatcher(t testing.TB) *dispatch.Dispatcher {
	t.Helper()
	db := memkv.New(memkv.Options{})
	t.Cleanup(func() { must(t, db.Close()) })

	return dispatch.New(dispatch.Options{
		DB:       db,
		Keyspace: testKeyspace(t),
		Now:      time.Now,
		Limits: dispatch.Limits{
			Lanes:           1,
			MaxBatch:        1024,
			MaxBatchBytes:   1 << 20,
			LeaseRoom:       1 << 20,
			MaxPending:      1024,
			MaxPendingBytes: 1 << 20,
			MaxWaiters:      1024,
			RequestTimeout:  time.Minute,
		},
		Warn: func(string, ...any) {},
	})
}

// maxTestResult is the MaxResult of a test's Handler.
const maxTestResult = 64

// newTestHandler returns a Handler whose dispatcher does not run.
func newTestHandler(t testing.TB) *Handler {
	t.Helper()
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	must(t, err)
	dispatcher := newTestDispatcher(t)

	return New(Config{
		Keyspace:       testKeyspace(t),
		Grammar:        grammar,
		Now:            time.Now,
		RequestTimeout: time.Minute,
		Dispatcher:     dispatcher,
		Outbox:         outbox.New(outbox.Config{Dispatcher: dispatcher}),
		Peers:          peers.New(peers.Config{Dispatcher: dispatcher}),
		MaxPayload:     func() int64 { return 1 << 20 },
		MaxResult:      maxTestResult,
		Endpoint:       func(subjects.Endpoint) Endpoint { return nil },
		Logger:         slog.New(slog.DiscardHandler),
	})
}
