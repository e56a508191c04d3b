package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// newJetStreamEnv starts a bridge that serves JetStream's programs, and the server for it.
func newJetStreamEnv(t *testing.T, o testenv.Options) *testenv.Env {
	t.Helper()
	o.JetStream = true
	return start(t, o)
}

// jetStreamOf returns the client's JetStream of the priority queues, which waits as long as tests
// do.
func jetStreamOf(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithDomain(nc, "pq", jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)
	return js
}

// minOf returns the consumer min of the queue "jobs".
func minOf(t testing.TB, nc *nats.Conn) (c jetstream.Consumer) {
	t.Helper()
	js := jetStreamOf(t, nc)
	// The server may tell others of the leaf node a little later.
	testenv.Eventually(t, func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err = js.Consumer(ctx, "jobs", "min")
		return err
	})

	return c
}

// A program of JetStream publishes to a queue, and its consumer gets the items in their order.
func TestJetStream(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	js := jetStreamOf(t, e.Conn)
	pushed := &nats.Msg{
		Subject: "pq.jobs.push.7",
		Header:  nats.Header{"X": {"y"}},
		Data:    []byte("a"),
	}

	ack, err := js.PublishMsg(t.Context(), pushed)
	must(t, err)
	same(t, "stream", ack.Stream, "jobs")

	store(t, e, 1, fdbpq.Message{Value: []byte("b")})

	c := minOf(t, e.Conn)
	for _, want := range []struct{ value, priority, header string }{
		{"b", "1", ""},
		{"a", "7", "y"},
	} {
		m, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
		must(t, err)
		same(t, "value", string(m.Data()), want.value)
		same(t, "priority", m.Headers().Get("Pq-Priority"), want.priority)
		same(t, "the pusher's header", m.Headers().Get("X"), want.header)
		same(t, "deliveries", m.Headers().Get("Pq-Deliveries"), "1")
		must(t, m.DoubleAck(t.Context()))
	}

	for series, want := range map[string]float64{
		"pq_jetstream_connected": 1,
		"pq_deliveries_total":    2,

		`pq_jetstream_requests_total{call="ACK"}`: 2,
	} {
		wantMetric(t, e.Bridge, series, want)
	}
	waitUntil(t, "what discovery says", func() bool {
		info := string(e.Request("$SRV.INFO.pqbridge", nil, nil).Data)
		return strings.Contains(info, `"jetstream":"connected"`)
	})
}

// When another bridge takes over a queue, its pulls end, so that clients pull there.
func TestJetStreamOwnerChanges(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	minOf(t, e.Conn)
	const n = 64
	root := e.Conn.NewInbox()
	s := subscribe(t, e.Conn, root+".*")

	for i := range n { // one of two owns each
		must(t, e.Conn.PublishRequest(fmt.Sprintf("$JS.pq.API.CONSUMER.MSG.NEXT.jobs%d.min", i),
			fmt.Sprintf("%s.%d", root, i), []byte(`{"expires":3600000000000}`)))
	}
	wantMetric(t, e.Bridge, "pq_waiters", n)

	newBridge(e)
	same(t, "the status", next(t, s).Header.Get("Description"), "Leadership Change")
	testenv.Eventually(t, func() error {
		if left := count(t, e.Bridge, "pq_waiters"); left == 0 || left == n {
			return fmt.Errorf("%v pulls wait", left)
		}
		return nil
	})
}

// A pull that does not wait gets what is behind items that its consumer gives up before its queue
// does: here just as many as it asks for. info shows the consumers.
func TestJetStreamGivesUp(t *testing.T) {
	clock := newSteppedClock()
	e := newJetStreamEnv(t, testenv.Options{Bridge: clock.options})

	fetch := func(c jetstream.Consumer, want string) {
		t.Helper()
		batch, err := c.FetchNoWait(2)
		must(t, err)

		got := ""
		for m := range batch.Messages() {
			got += string(m.Data())
		}
		same(t, "fetched", got, want)
	}

	pushAll(t, e, "pq.jobs.push", "a", "b")
	ok(t, e, "pq.jobs.config", nil, `{"max_deliver":5,"ack_wait":"30s"}`)
	fetch(minOf(t, e.Conn), "ab")
	clock.step(time.Minute)
	c, err := jetStreamOf(t, e.Conn).CreateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{
		Durable:    "w",
		AckPolicy:  jetstream.AckExplicitPolicy,
		MaxDeliver: 1,
	})
	must(t, err)

	pushAll(t, e, "pq.jobs.push", "c", "d", "e")
	fetch(c, "cd")
	wantDead(t, e.Request("pq.jobs-dead.pop.min", nil, []byte(`{"expires":"1h"}`)), "a",
		died{Queue: "jobs", Reason: "max_deliver", Deliveries: 1})

	info, err := subjects.ParseQueueInfo(ok(t, e, "pq.jobs.info", nil, "").Data)
	if err != nil || len(info.Consumers) != 1 || info.Consumers[0].MaxDeliver != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// The bridge that owns a queue may have no leaf node connection. Then the others serve its
// consumers.
func TestJetStreamOwnerIsAway(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	without := func(o *bridge.Options) { o.JetStream.LeafURL = "" }

	for range 3 {
		newBridge(e, without)
	}
	wantMetric(t, e.Bridge, "pq_bridges", 4)

	js := jetStreamOf(t, e.Conn)
	minOf(t, e.Conn)

	for i := range 20 { // one of four owns each
		queue := fmt.Sprint("jobs", i)
		_, err := js.Publish(t.Context(), "pq."+queue+".push", []byte("a"))
		must(t, err)

		c, err := js.Consumer(t.Context(), queue, "min")
		must(t, err)
		m, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
		must(t, err)
		must(t, m.DoubleAck(t.Context()))
	}
}

// A server whose own JetStream has the domain of either kind keeps all requests to itself. The
// bridge says so, also if the server gets it later, and serves once the server has another one.
func TestJetStreamDomainTaken(t *testing.T) {
	dir := t.TempDir()
	e := newJetStreamEnv(t, testenv.Options{Stopped: true, NATS: func(n *server.Options) {
		n.JetStream, n.JetStreamDomain, n.StoreDir = true, "pq", dir
	}})
	e.NATS.Start()
	b := e.StartBridge()
	notReady(t, b, `domain of the NATS server itself is "pq"`)

	restartAs := func(domain string) {
		e.NATS.Change(func(n *server.Options) { n.JetStreamDomain = domain })
		e.NATS.Restart()
	}

	restartAs("hub")
	b.WaitReady()
	store(t, e, 0, fdbpq.Message{Value: []byte("a")})
	m, err := minOf(t, e.Connect()).Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	must(t, m.DoubleAck(t.Context()))

	restartAs("q")
	notReady(t, b, `domain of the NATS server itself is "q"`)
	b.MustStop()
}

// A bridge that stops answers the pulls that wait, and finishes what it has.
func TestJetStreamShutdown(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	store(t, e, 0, fdbpq.Message{Value: []byte("a")})
	m, err := minOf(t, e.Conn).Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)

	inbox := e.Conn.NewInbox()
	s := subscribe(t, e.Conn, inbox)
	must(t, e.Conn.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox,
		[]byte(`{"expires":3600000000000}`)))

	wantMetric(t, e.Bridge, "pq_waiters", 1)
	must(t, m.Ack())
	must(t, e.Conn.FlushTimeout(testenv.Patience))
	e.Bridge.MustStop()

	same(t, "the status", next(t, s).Header.Get("Description"), "Server Shutdown")

	items, err := kv.ReadTransact(t.Context(), e.DB, func(r kv.Reader) (fdbpq.Result, error) {
		results, err := fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpInfo, Queue: jobsOf(t, e)}})
		return results[0], err
	})
	must(t, err)
	same(t, "left", items.Info.Ready+items.Info.Leased, 0)
}

// Without its leaf node port a bridge is not ready, and stops as any other.
func TestJetStreamWithoutPort(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{Stopped: true})
	e.NATS.Change(func(n *server.Options) { n.LeafNode.Port = 0 })
	e.NATS.Start()
	b := e.StartBridge()
	notReady(t, b, "jetstream: leaf: ")
	b.MustStop()
}

// A connection that is lost is made again, and clients go on.
func TestJetStreamReconnects(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{Bridge: newSteppedClock().options})
	c := minOf(t, e.Conn)
	messages, err := c.Messages(jetstream.PullExpiry(time.Second))
	must(t, err)

	defer messages.Stop()
	receive := func(want string) (m jetstream.Msg) {
		t.Helper()
		// Heartbeats may be late.
		for m, err = messages.Next(); err != nil; m, err = messages.Next() {
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				t.Fatal(err)
			}
		}
		same(t, "value", string(m.Data()), want)

		return m
	}

	store(t, e, 0, fdbpq.Message{Value: []byte("a")})
	m := receive("a")

	e.NATS.Restart()
	e.Bridge.WaitReady()
	must(t, m.Ack())

	store(t, e, 0, fdbpq.Message{Value: []byte("b")})
	must(t, receive("b").DoubleAck(t.Context()))
}

// An item that the server does not carry is refused as one popped is.
func TestJetStreamItemTooLarge(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{NATS: func(n *server.Options) { n.MaxPayload = 4096 }})
	store(t, e, 0, fdbpq.Message{Value: make([]byte, 4096), Headers: nil})
	store(t, e, 1, fdbpq.Message{Value: make([]byte, 4097)})
	c := minOf(t, e.Conn)
	m, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)

	same(t, "headers of one without room for them", len(m.Headers()), 0)
	must(t, m.DoubleAck(t.Context()))

	inbox := e.Conn.NewInbox()
	s := subscribe(t, e.Conn, inbox)
	must(t, e.Conn.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox,
		[]byte(`{"expires":1000000000}`)))

	same(t, "the status", next(t, s).Header.Get("Status"), "409")
	testenv.Eventually(t, func() error { // it goes back after that
		got := string(e.Request("pq.jobs.len", nil, nil).Data)
		if got != `{"queue":"jobs","len":1}` {
			return errors.New(got)
		}

		return nil
	})
}

// A pull ends at the heartbeat after the end of the wildcard that its client listens to, as
// nats.go's PullSubscribe does.
func TestJetStreamWildcardInbox(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	minOf(t, e.Conn)
	inbox := e.Conn.NewInbox()
	s := subscribe(t, e.Conn, inbox+".*")

	for id, payload := range map[string]string{
		"1": `{"expires":3600000000000,"idle_heartbeat":100000000}`,
		"2": `{"expires":3600000000000}`,
	} {
		must(t, e.Conn.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox+"."+id,
			[]byte(payload)))
	}

	own := subscribe(t, e.Conn, inbox+".2")
	wantMetric(t, e.Bridge, "pq_waiters", 2)
	must(t, s.Unsubscribe())

	wantMetric(t, e.Bridge, "pq_waiters", 1)

	e.Request("pq.jobs.push", nil, []byte("a"))
	wantData(t, next(t, own), "a")
}

// Pulls beyond what their consumer allows are told so, as JetStream would. Package jetstream
// compares the other statuses.
func TestJetStreamStatuses(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	minOf(t, e.Conn)
	js := jetStreamOf(t, e.Conn)
	_, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{
		Durable:            "w",
		AckPolicy:          jetstream.AckExplicitPolicy,
		MaxRequestBatch:    10,
		MaxRequestExpires:  time.Hour,
		MaxRequestMaxBytes: 1000,
		MaxWaiting:         1,
	})
	must(t, err)

	pull := func(payload string) *nats.Subscription {
		return ask(t, e.Conn, "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", payload)
	}
	says := func(s *nats.Subscription, want string) {
		t.Helper()
		m := next(t, s)
		same(t, "the status", m.Header.Get("Status")+" "+m.Header.Get("Description"), want)
	}

	says(pull(`{"no_wait":true}`), "404 No Messages")
	says(pull(`11`), "409 Exceeded MaxRequestBatch of 10")
	says(pull(`{"expires":7200000000000}`), "409 Exceeded MaxRequestExpires of 1h0m0s")
	says(pull(`{"max_bytes":1001}`), "409 Exceeded MaxRequestMaxBytes of 1000")
	first := pull(`{"expires":3600000000000}`)
	says(pull(``), "409 Exceeded MaxWaiting")
	must(t, js.DeleteConsumer(t.Context(), "jobs", "w"))

	says(first, "409 Consumer Deleted")
}
