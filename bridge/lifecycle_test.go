package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// notReady waits until /readyz gives a reason with these words, while /healthz is well.
func notReady(t *testing.T, b *testenv.Bridge, want string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		ready, reasons, err := b.Ready()
		if err == nil && (ready || !strings.Contains(strings.Join(reasons, "; "), want)) {
			err = fmt.Errorf("ready: %t, reasons %q: want one with %q", ready, reasons, want)
		}

		return err
	})
	if status, _, err := b.Get("/healthz"); status != 200 || err != nil {
		t.Errorf("/healthz: %d, %v", status, err)
	}
}

// A bridge starts before its NATS server, says that it is not ready, and serves once that is there.
func TestStartsBeforeNATS(t *testing.T) {
	e := start(t, testenv.Options{Stopped: true})
	b := e.StartBridge()
	notReady(t, b, "nats")

	wantMetric(t, b, "pq_nats_connected", 0)

	e.NATS.Start()
	b.WaitReady()
	e.Conn = e.Connect()
	push(t, e, "pq.jobs.push", nil, "x")

	wantMetric(t, b, "pq_nats_connected", 1)
	b.MustStop()
}

// A bridge that stops serving again and again forgets the subscriptions that have ended.
func TestSubscriptionsAreForgotten(t *testing.T) {
	e := start(t, testenv.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()

	for range 3 {
		must(t, e.Bridge.RestartServing(ctx))
		testenv.Eventually(t, func() error {
			_, ending := e.Bridge.Subscriptions()
			for _, s := range ending {
				if s.IsValid() {
					return fmt.Errorf("%s has not ended", s.Subject)
				}
			}

			return nil
		})

		push(t, e, "pq.jobs.push", nil, "x")
	}

	serving, ending := e.Bridge.Subscriptions()
	if len(ending) > len(serving) {
		t.Errorf("%d former subscriptions are kept, with %d in use", len(ending), len(serving))
	}
}

// A bridge outlives restarts of its NATS server, and no item is lost.
func TestNATSRestarts(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for i := range 2 {
			push(t, e, "pq.jobs.push", nil, "x")
			e.NATS.Stop()
			wantMetric(t, e.Bridge, "pq_nats_connected", 0) // before that /readyz may wait for NATS

			notReady(t, e.Bridge, "nats")
			e.NATS.Start()
			e.Bridge.WaitReady()

			testenv.Eventually(t, e.Conn.Flush) // the client is back, too
			wantLen(t, e, "pq", "jobs", i+1)
		}
	})
}

// While the store is away, requests are answered 503; everything works again when it is
// back.
func TestStoreOutage(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		var faults *faultkv.DB
		e := testenv.New(t, testenv.Options{Engine: engine, Wrap: func(db kv.Database) kv.Database {
			faults = faultkv.New(db, faultkv.Options{})
			return faults
		}})

		push(t, e, "pq.jobs.push", nil, "x")
		faults.SetOutage(true)

		for _, subject := range []string{
			"pq.jobs.push", "pq.jobs.pop.min", "pq.jobs.len", "q.jobs.pop",
		} {
			err := refused(t, e, 503, subject, nil, nil)
			if !errors.Is(err, kv.ErrUnavailable) || err.Unknown {
				t.Errorf("%s: %v", subject, err)
			}
		}

		notReady(t, e.Bridge, "store")
		faults.SetOutage(false)
		e.Bridge.WaitReady()

		wantLen(t, e, "pq", "jobs", 1)
	})
}

// stuck is a store in which no transaction begins until its context ends or the store
// is freed.
type stuck struct {
	kv.Database
	entered chan struct{} // gets an element for each transaction that begins
	free    chan struct{}
}

func (s stuck) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	select {
	case s.entered <- struct{}{}:
	case <-s.free:
	case <-ctx.Done():
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.free:
		return s.Database.Begin(ctx, o)
	}
}

// awaitStart returns when a bridge has begun what it does at the start: the sweep of old receipts,
// and the record of what it counts.
func (s stuck) awaitStart() {
	for range 2 {
		<-s.entered
	}
}

// startStuck starts a system whose store is stuck.
func startStuck(t *testing.T, o testenv.Options) (*testenv.Env, stuck) {
	s := stuck{entered: make(chan struct{}), free: make(chan struct{})}
	o.Wrap = func(db kv.Database) kv.Database {
		keyspace := newKeyspace(t, subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
		if _, err := fdbpq.OpenStore(t.Context(), db, keyspace, fdbpq.StoreOptions{}); err != nil {
			t.Fatal(err)
		}

		s.Database = db // opened before, so that opening it needs no transaction
		return s
	}

	e := testenv.New(t, o)
	s.awaitStart()
	return e, s
}

// Requests that have waited too long are answered without being run, as such if the store has let
// go of them by then.
func TestRequestTimeout(t *testing.T) {
	t.Parallel()

	e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Lanes = 1
		o.RequestTimeout = 500 * time.Millisecond
	}})
	waitUntil(t, "answers in time", func() bool {
		first := ask(t, e.Conn, "pq.jobs.push", "begun, then cancelled")
		second := ask(t, e.Conn, "pq.jobs.push", "not run")
		one := wantError(t, 503, "push", next(t, first))
		other := wantError(t, 503, "push", next(t, second))

		return !one.Unknown && !other.Unknown
	})

	close(s.free)
	wantSettled(t, e, "jobs")
	wantQueued(t, e, 0)
}

// next returns the next message of a subscription.
func next(t *testing.T, replies *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := replies.NextMsg(testenv.Patience)
	if err != nil {
		t.Fatalf("no reply: %v", err)
	}

	return m
}

// Requests delivered before the shutdown are run and answered.
func TestShutdownFinishes(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e, s := startStuck(t, testenv.Options{
			Engine: engine,
			Bridge: func(o *bridge.Options) { o.ShutdownTimeout = time.Minute },
		})

		var replies []*nats.Subscription
		for range 50 {
			replies = append(replies, ask(t, e.Conn, "pq.jobs.push", "x"))
		}

		<-s.entered
		wantMetric(t, e.Bridge, "pq_pending_requests", 50)

		e.Bridge.BeginStop()
		notReady(t, e.Bridge, "shutting down")
		close(s.free)

		for _, r := range replies {
			must(t, replyError(next(t, r).Header))
		}
		e.Bridge.MustStop()
		e.Bridge = newBridge(e)

		wantLen(t, e, "pq", "jobs", 50)
	})
}

// Requests that cannot be finished in time are answered 503.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()

	e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Lanes = 1
		o.ShutdownTimeout = 8 * time.Second // a quarter of which is for the answers
	}})

	first := ask(t, e.Conn, "pq.jobs.push", "begun")
	<-s.entered
	second := ask(t, e.Conn, "pq.jobs.push", "waits")

	wantMetric(t, e.Bridge, "pq_pending_requests", 2)
	if err := e.Bridge.Stop(); err == nil {
		t.Error("Run: no error")
	}
	wantError(t, 503, "push", next(t, first))
	wantError(t, 503, "push", next(t, second))
}

// Each option that is out of its bounds is named, all at once, and the smallest values are fine.
func TestOptionsBounds(t *testing.T) {
	dotted, err := subjects.New("team.pq", "q")
	must(t, err)

	for name, o := range map[string]bridge.Options{
		"NATSURL":           {NATSURL: "nats://host:99999"},
		"QueueGroup":        {QueueGroup: "a b"},
		"HTTPTimeout":       {HTTPTimeout: 24*time.Hour + 1},
		"JetStream.LeafURL": {JetStream: bridge.JetStreamOptions{LeafURL: "http://host"}},
		"Grammar":           {Grammar: dotted, JetStream: bridge.JetStreamOptions{LeafURL: "host"}},
		"MetricQueues":      {MetricQueues: 1_000_001},
		"Lanes":             {Limits: dispatch.Limits{Lanes: 1025}},
		"MaxBatch":          {Limits: dispatch.Limits{MaxBatch: 1<<16 + 1}},
		"MaxBatchBytes":     {Limits: dispatch.Limits{MaxBatchBytes: 8_000_001}},
		"LeaseRoom":         {Limits: dispatch.Limits{LeaseRoom: 9_000_001}},
		"MaxPending":        {Limits: dispatch.Limits{MaxPending: 1<<30 + 1}},
		"MaxPendingBytes":   {Limits: dispatch.Limits{MaxPendingBytes: math.MinInt}},
		"MaxWaiters":        {Limits: dispatch.Limits{MaxWaiters: 1<<30 + 1}},
		"RequestTimeout":    {Limits: dispatch.Limits{RequestTimeout: time.Millisecond - 1}},
		"ShutdownTimeout":   {ShutdownTimeout: math.MaxInt64},
	} {
		text := o.Validate().Error() // which lists all problems
		if !strings.Contains(text, "bridge: "+name+" is ") ||
			!strings.Contains(text, "bridge: DB ") {
			t.Errorf("%s is not in:\n%s", name, text)
		}
	}

	least := bridge.Options{
		NATSURL:         "host:1",
		HTTPTimeout:     time.Millisecond,
		MetricQueues:    -1,
		ShutdownTimeout: 1,
		Limits: dispatch.Limits{
			Lanes:           1,
			MaxBatch:        1,
			MaxBatchBytes:   1,
			LeaseRoom:       1,
			MaxPending:      1,
			MaxPendingBytes: 1,
			MaxWaiters:      1,
			RequestTimeout:  time.Millisecond,
		},
	}

	required := []string{"bridge: DB ", "bridge: Keyspace ", "bridge: Grammar "}
	for _, line := range strings.Split(least.Validate().Error(), "\n") {
		starts := func(s string) bool { return strings.HasPrefix(line, s) }
		if !slices.ContainsFunc(required, starts) {
			t.Errorf("the smallest values are refused: %s", line)
		}
	}
}
