package peers

import (
	"context"
	"log/slog"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
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
	r, l := p.Router, p.Router.bell
	missed := func(what string, want bool) {
		t.Helper()
		if got := took(l.work) && l.mu.missed; got != want {
			t.Errorf("%s: pops look: %t", what, got)
		}
		l.mu.missed = false
	}
	hear := func(text string) { r.hearHeartbeat(&nats.Msg{Data: []byte(text)}) }
	hear("here rings a")
	l.recheck()
	missed("nothing waits", false)
	l.waitersChanged(&dispatch.Queue{Name: "jobs"}, true)
	if !took(l.work) || len(l.takeFresh()) != 1 {
		t.Error("a queue is not listened to")
	}
	hear("here rings a")
	missed("it rang before", false)
	hear("here a")
	missed("it no longer rings", false)
	hear("here rings a")
	missed("it rings again", true)
	hear("here rings b")
	missed("a new peer that rings", true)
	p.Connected()
	missed("a new connection", true)
}

// A bridge that cannot confirm its subscriptions, because NATS takes too long, tries again. Else no
// peer would ring for it until the next connection.
func TestBellTriesAgain(t *testing.T) {
	p := newTest(t)
	l := p.Router.bell
	nc, err := nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close() // so that it fails at once
	p.config.Conn = func() *nats.Conn { return nc }
	p.config.Flush = nc.FlushWithContext
	l.waitersChanged(&dispatch.Queue{Name: "jobs"}, true)
	took(l.work)
	l.listen(t.Context())
	if took(l.work) {
		t.Error("it tries again without a pause")
	}
	l.beat()
	if !took(l.work) || len(l.takeFresh()) != 1 || l.waits() {
		t.Error("it does not try again")
	}
	if l.beat(); took(l.work) {
		t.Error("it tries again without need")
	}
}

// A bridge listens to a bell for a while after the last pop has waited, and then says that it
// waits for nothing any more.
func TestBellLife(t *testing.T) {
	l := newTest(t).Router.bell
	jobs, again := &dispatch.Queue{Name: "jobs"}, &dispatch.Queue{Name: "jobs"}
	mail := &dispatch.Queue{Name: "jobs", Kind: subjects.FIFO}
	l.waitersChanged(jobs, true)
	l.waitersChanged(mail, true)
	l.waitersChanged(mail, false)
	l.setWaits()
	if fresh := l.takeFresh(); len(fresh) != 2 || !l.waits() || !took(l.helloNow) {
		t.Errorf("%d new bells, waits: %t", len(fresh), l.waits())
	}
	beats := func(n, bells int, waits bool) {
		t.Helper()
		for range n {
			l.beat()
		}
		if len(l.mu.queues) != bells || l.waits() != waits || len(l.mu.idle) > bells {
			t.Errorf("after %d heartbeats: %d bells, %d of them idle, waits: %t", n, len(l.mu.queues), len(l.mu.idle), l.waits())
		}
	}
	beats(bellLife, 2, true)
	beats(1, 1, true)
	l.waitersChanged(jobs, false)
	beats(bellLife, 1, true)
	l.waitersChanged(again, true) // of another object, which the registry made
	beats(2*bellLife, 1, true)
	for _, q := range l.mu.queues {
		if q.queue.Load() != again {
			t.Error("it would wake the old object")
		}
	}
	l.waitersChanged(again, false)
	beats(bellLife+1, 0, false)
	if !took(l.helloNow) {
		t.Error("the peers are not told at once")
	}
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
