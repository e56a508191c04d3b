package peers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// took reports whether a channel had an element, and takes it.
func took(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A bridge rings as long as one of its peers says that it waits, and tells the peers when that
// changes.
func TestPeersThatWait(t *testing.T) {
	r := newTest(t).Router
	rings := func(what string, want, changed bool) {
		t.Helper()
		if got := r.bell.peersWait.Load(); got != want {
			t.Errorf("%s: it rings: %t", what, got)
		}
		if got := took(r.helloNow); got != changed {
			t.Errorf("%s: it sends a heartbeat at once: %t", what, got)
		}
	}

	hear := func(text string) { r.hearHeartbeat(&nats.Msg{Data: []byte(text)}) }
	hear("here a")
	hear("here b")
	rings("two peers", false, true) // the peers are new
	hear("here a")
	rings("nothing new", false, false)
	hear("here waits a")
	rings("one waits", true, true)
	hear("here waits rings b")
	rings("both wait", true, false)
	hear("here a")
	rings("one still waits", true, false)
	hear("left waits b")
	rings("it has left, and its pops still wait", true, false)

	for range peerLife + 1 {
		r.agePeers()
	}

	rings("both are gone", false, true)
}

// When a peer begins to ring, or there is a new connection, pops that wait look once more for
// what they may have missed.
func TestMissedRings(t *testing.T) {
	p := newTest(t)
	r, looks := p.Router, 0
	r.bell.wakeAll = func() { looks++ }
	hear := func(text string) { r.hearHeartbeat(&nats.Msg{Data: []byte(text)}) }

	missed := func(what string, want int) {
		t.Helper()
		if looks != want {
			t.Errorf("%s: pops looked %d times, want %d", what, looks, want)
		}

		looks = 0
	}

	hear("here rings a")
	missed("a peer that rings", 1)
	hear("here rings a")
	missed("it rang before", 0)
	hear("here a")
	missed("it no longer rings", 0)
	hear("here rings a")
	missed("it rings again", 1)
	hear("here rings b")
	missed("a new peer that rings", 1)
	p.Connected()
	missed("a new connection", 1)
}

// A bridge says that it waits from the first pop that does until a while after the last.
func TestBellLife(t *testing.T) {
	r := newTest(t).Router
	waits := &r.bell.waits

	says := func(when string, want bool) {
		t.Helper()
		if got := waits.Load(); got != want {
			t.Errorf("%s: it says that it waits: %t", when, got)
		}
	}

	says("at first", false)
	r.Waits()
	says("a pop waits", true)

	if !took(r.helloNow) {
		t.Error("the peers are not told at once")
	}

	r.Waits()
	if took(r.helloNow) {
		t.Error("the peers are told twice")
	}

	for range 2 * needLife {
		waits.beat(true)
	}
	says("it still waits", true)

	for range needLife {
		waits.beat(false)
	}
	says("the next pop may follow soon", true)

	waits.beat(false)
	says("none has followed", false)

	waits.beat(true) // one that Waits was called for while the bell was about to end
	says("it waits again", true)
}

func TestMain(m *testing.M) { harness.Main(m) }

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

	limits := dispatch.Limits{
		Lanes:           4,
		MaxBatch:        1024,
		MaxBatchBytes:   4 << 20,
		MaxPending:      16384,
		MaxPendingBytes: 64 << 20,
		MaxWaiters:      100,
		RequestTimeout:  5 * time.Second,
	}

	dispatcher := dispatch.New(dispatch.Options{
		DB:          db,
		Keyspace:    keyspace,
		Limits:      limits,
		Warn:        func(string, ...any) {},
		BatchDone:   func(int) {},
		Owns:        func(subjects.Kind, string) bool { return true },
		RequeueLate: func(*dispatch.Queue, fdbpq.OpKind, *fdbpq.Result) {},
	})

	return New(Config{
		Self:          Self{ID: "self"},
		Dispatcher:    dispatcher,
		OwnersChanged: func() {},
		Limits:        limits,
		Conn:          func() *nats.Conn { return nil },
		Online:        func() bool { return false },
		Flush:         func(context.Context) error { return nats.ErrDisconnected },
		Receive:       func(*nats.Msg, Origin) {},
		Cancel:        func(string) {},
		ResultWaits:   func() int { return 0 },
		Told:          func([]fdbpq.QueueJob) {},
		LookAll:       func() {},
		Forwarded:     func() {},
		Logger:        slog.New(slog.DiscardHandler),
		Warn:          func(string, ...any) {},
	})
}
