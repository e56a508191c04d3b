package bridge_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv"
)

// A flood of pulls waits as far as its consumers and the bridge allow it. The others are told.
func TestJetStreamFlood(t *testing.T) {
	const pulls, most, each = 4000, 1000, 600
	e := newJetStreamEnv(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxWaiters = most }})
	minOf(t, e.Conn)
	js, err := jetstream.NewWithDomain(e.Conn, "pq")
	must(t, err)
	for _, name := range []string{"v", "w"} {
		_, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxWaiting: each})
		must(t, err)
	}

	inbox := e.Conn.NewInbox()
	s := subscribe(t, e.Conn, inbox)
	flood := func(consumer string, n int) {
		t.Helper()
		for range n {
			must(t, e.Conn.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs."+consumer, inbox, []byte(`{"expires":36000000000000}`)))
		}
	}
	refused := func(n int) {
		t.Helper()
		for range n {
			if got := next(t, s).Header.Get("Description"); got != "Exceeded MaxWaiting" {
				t.Fatalf("the status is %q", got)
			}
		}
	}
	flood("w", pulls/2)
	refused(pulls/2 - each)
	flood("v", pulls/2)
	refused(pulls/2 - (most - each))
	testenv.Eventually(t, func() error { return metricIs(e.Bridge, "pq_waiters", most) })

	store(t, e, 0, fdbpq.Message{Value: []byte("a")})
	e.Request("pq.jobs.push", nil, []byte("b"))
	for range 2 {
		m := next(t, s)
		must(t, m.AckSync())
	}
	must(t, s.Unsubscribe())
	testenv.Eventually(t, func() error { return metricIs(e.Bridge, "pq_waiters", 0) })
	e.Request("pq.jobs.push", nil, []byte("c"))
	m, err := minOf(t, e.Conn).Next()
	must(t, err)
	same(t, "afterwards", string(m.Data()), "c")
}

// A pull ends with the wildcard that its client listens to, as nats.go's PullSubscribe does.
func TestJetStreamWildcardInbox(t *testing.T) {
	e := newJetStreamEnv(t, testenv.Options{})
	minOf(t, e.Conn)
	inbox := e.Conn.NewInbox()
	s := subscribe(t, e.Conn, inbox+".*")
	for _, id := range []string{"1", "2"} {
		must(t, e.Conn.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox+"."+id, []byte(`{"expires":36000000000000}`)))
	}
	own := subscribe(t, e.Conn, inbox+".2")
	testenv.Eventually(t, func() error { return metricIs(e.Bridge, "pq_waiters", 2) })
	must(t, s.Unsubscribe())
	testenv.Eventually(t, func() error { return metricIs(e.Bridge, "pq_waiters", 1) })
	e.Request("pq.jobs.push", nil, []byte("a"))
	wantData(t, next(t, own), "a")
}

// Whatever a pull asks for, it ends with the status of JetStream's own.
func TestJetStreamHostilePulls(t *testing.T) {
	t.Parallel()
	l := alone(t, withJetStream(t, ", domain: hub"))
	_, nc := l.start(t)
	l.jetStream(t, nc)
	for _, domain := range []string{"hub", "pq"} {
		js, err := jetstream.NewWithDomain(nc, domain)
		must(t, err)
		_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: "jobs", Subjects: []string{domain + ".jobs.push"}, Retention: jetstream.WorkQueuePolicy})
		must(t, err)
		_, err = js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{
			Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxRequestBatch: 100})
		must(t, err)
	}

	for _, payload := range []string{
		`{`, `{]`, `{"batch":"x"}`, `{"batch":1.5}`, `{"batch":1e99}`, `{"batch":99999999999999999999}`, `{"expires":"1s"}`, `{"no_wait":1}`,
		`{"batch":` + strings.Repeat("9", 900) + `}`, strings.Repeat(`{"a":`, 200), "{\"\r\n\":1", "{\x00}", `{"expires":1e6} x`,
		`{"batch":101}`, `{"batch":9223372036854775807}`, `101`, `{"no_wait":true}`, `{"no_wait":true,"group":"a"}`, `{"no_wait":true,"priority":5}`,
		`{"expires":1000000,"idle_heartbeat":1000000}`, `{"expires":-1}`, `{"expires":-9223372036854775808}`, `{"expires":1000000,"max_bytes":-5}`,
		`{"expires":1000000,"max_bytes":9223372036854775807}`, `{"expires":1000000,"idle_heartbeat":-1}`,
		`{"min_pending":1}`, `{"min_ack_pending":-1}`, `{"id":"x"}`, `{"priority":10}`, `{"priority":-1}`, `{"priority":"x"}`,
		`{"no_wait":true,"min_pending":0,"id":"","priority":0,"group":""}`, `{"no_wait":true,"other":[1,{}]}`,
	} {
		var said [2]string
		for i, domain := range []string{"hub", "pq"} {
			said[i] = statusOfPull(t, nc, domain, payload)
		}
		if said[0] != said[1] {
			t.Errorf("%.80s: got %q, want %q", payload, said[1], said[0])
		}
	}
}

// statusOfPull makes a pull and returns what it ends with. Reasons why JSON is wrong may differ.
func statusOfPull(t *testing.T, nc *nats.Conn, domain, payload string) string {
	t.Helper()
	inbox := nc.NewInbox()
	s := subscribe(t, nc, inbox)
	defer func() { must(t, s.Unsubscribe()) }()
	must(t, nc.PublishRequest("$JS."+domain+".API.CONSUMER.MSG.NEXT.jobs.w", inbox, []byte(payload)))
	m := next(t, s)
	text := m.Header.Get("Description")
	for _, decoder := range []string{"json: ", "invalid character", "unexpected end", "exceeded max depth"} {
		if before, after, found := strings.Cut(text, decoder); found {
			text = before + "(JSON)"
			if len(after) > 1000 && domain == "pq" {
				t.Errorf("%d bytes say what is wrong", len(after))
			}
		}
	}
	return m.Header.Get("Status") + " " + text
}
