package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// ok makes a request that must succeed.
func ok(
	t *testing.T, e *testenv.Env, subject string, headers nats.Header, payload string,
) *nats.Msg {
	t.Helper()
	reply := e.Request(subject, headers, []byte(payload))
	if err := replyError(reply.Header); err != nil {
		t.Fatalf("%s: %v", subject, err)
	}

	return reply
}

// parsed makes a request that must succeed, and returns what the reply says.
func parsed[T any](t *testing.T, e *testenv.Env, subject, payload string) T {
	t.Helper()
	reply, err := subjects.ParseReply[T](ok(t, e, subject, nil, payload).Data)
	must(t, err)
	return reply
}

// refused makes a request that must fail with a code, and returns the error.
func refused(
	t *testing.T, e *testenv.Env, code int, subject string, headers nats.Header, payload []byte,
) *refusal {
	t.Helper()
	return wantError(t, code, subject, e.Request(subject, headers, payload))
}

// wantError checks that a reply is an error with a code, and returns the error.
func wantError(t *testing.T, code int, subject string, reply *nats.Msg) *refusal {
	t.Helper()
	err := replyError(reply.Header)
	if err == nil {
		t.Fatalf("%s: succeeded with %.100q %v: want error %d", subject, reply.Data, reply.Header,
			code)
	}

	wire := err.(*refusal)
	if wire.Code != subjects.Code(code) || wire.Text == "" {
		t.Errorf("%s: got %v: want %d and a text", subject, err, code)
	}

	told := subjects.Error{Code: wire.Code, Text: wire.Text}
	if len(reply.Data) != 0 && string(reply.Data) != string(told.Payload()) {
		t.Errorf("%s: got %v with the payload %q: want the same error, or none", subject, err,
			reply.Data)
	}

	return wire
}

// push pushes an item, and returns what the reply says.
func push(
	t *testing.T, e *testenv.Env, subject string, h nats.Header, payload string,
) (p subjects.Pushed) {
	t.Helper()
	must(t, json.Unmarshal(ok(t, e, subject, h, payload).Data, &p))
	return p
}

// wantItem makes a request for one item, and compares its payload and headers with the push.
func wantItem(t *testing.T, e *testenv.Env, subject, payload string, pushed subjects.Pushed) {
	t.Helper()
	reply := ok(t, e, subject, nil, "")
	if string(reply.Data) != payload {
		t.Errorf("%s returned %q, want %q", subject, reply.Data, payload)
	}

	want := nats.Header{subjects.HeaderID: {pushed.ID}}
	if pushed.Priority != nil {
		want[subjects.HeaderPriority] = []string{strconv.FormatInt(*pushed.Priority, 10)}
	}

	at := reply.Header.Get(subjects.HeaderPushedAt)
	parsed, err := time.Parse("2006-01-02T15:04:05.000000Z", at)
	if err != nil || time.Since(parsed).Abs() > testenv.Patience {
		t.Errorf("%s: %s is %q: %v", subject, subjects.HeaderPushedAt, at, err)
	}

	delete(reply.Header, subjects.HeaderPushedAt)
	if !maps.EqualFunc(reply.Header, want, slices.Equal) {
		t.Errorf("%s: headers %v, want %v", subject, reply.Header, want)
	}
}

// wantLen compares how many items of a queue are ready.
func wantLen(t *testing.T, e *testenv.Env, prefix, queue string, n int) {
	t.Helper()
	got := string(ok(t, e, prefix+"."+queue+".len", nil, "").Data)
	if want := fmt.Sprintf(`{"queue":%q,"len":%d}`, queue, n); got != want {
		t.Errorf("len is %s, want %s", got, want)
	}
}

// Items of a priority queue come out by priority from either end, and at one priority in the order
// of their pushes. A peek leaves them, and an empty queue answers 404.
func TestPriorityQueue(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		wantLen(t, e, "pq", "jobs", 0)
		refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

		middle := push(t, e, "pq.jobs.push", nil, "middle")
		low := push(t, e, "pq.jobs.push.-9223372036854775808", nil, "low")
		high := push(t, e, "pq.jobs.push", nats.Header{"Pq-Priority": {"9223372036854775807"}},
			"high")
		second := push(t, e, "pq.jobs.push.0", nats.Header{"Pq-Priority": {"0"}}, "second")
		empty := push(t, e, "pq.jobs.push.5", nil, "")

		if middle.Queue != "jobs" || *middle.Priority != 0 ||
			*low.Priority != -9223372036854775808 {
			t.Errorf("replies %+v and %+v", middle, low)
		}
		wantLen(t, e, "pq", "jobs", 5)
		wantLen(t, e, "q", "jobs", 0)

		wantItem(t, e, "pq.jobs.peek.min", "low", low)
		wantItem(t, e, "pq.jobs.peek.max", "high", high)
		wantItem(t, e, "pq.jobs.pop.min", "low", low)
		wantItem(t, e, "pq.jobs.pop.max", "high", high)
		wantItem(t, e, "pq.jobs.pop.max", "", empty)
		wantItem(t, e, "pq.jobs.pop.min", "middle", middle)
		wantItem(t, e, "pq.jobs.pop.min", "second", second)
		wantLen(t, e, "pq", "jobs", 0)

		for _, verb := range []string{"pop.min", "pop.max", "peek.min", "peek.max"} {
			refused(t, e, 404, "pq.jobs."+verb, nil, nil)
		}
	})
}

// Items of a FIFO queue come out in the order of their pushes, and are not in the priority queue of
// the same name. A peek leaves them, and an empty queue answers 404.
func TestFIFOQueue(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		first := push(t, e, "q.mail.push", nil, "first")
		second := push(t, e, "q.mail.push", nil, "second")
		if first.Queue != "mail" || first.Priority != nil {
			t.Errorf("reply %+v", first)
		}
		wantLen(t, e, "q", "mail", 2)
		wantLen(t, e, "pq", "mail", 0)
		wantItem(t, e, "q.mail.peek", "first", first)
		wantItem(t, e, "q.mail.pop", "first", first)
		wantItem(t, e, "q.mail.pop", "second", second)
		refused(t, e, 404, "q.mail.pop", nil, nil)
		refused(t, e, 404, "q.mail.peek", nil, nil)
	})
}

// publish sends a request without waiting for the reply.
func publish(t *testing.T, e *testenv.Env, subject, reply, payload string) {
	t.Helper()
	must(t, e.Conn.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(payload)}))
}

// Every payload that NATS carries comes back byte for byte. Near max_payload, where there is no
// room for them, it comes without our headers.
func TestPayloads(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine})
		limit := int(e.Conn.MaxPayload())
		withHeaders := limit - 500 // has room for our headers

		// 90,000 is where stored values are split.
		for _, size := range []int{
			0, 1, 1000, 89_999, 90_000, 90_001, 500_000, withHeaders, limit - 1, limit,
		} {
			payload := make([]byte, size)
			for i := range payload {
				payload[i] = byte(i * 7 >> 3)
			}

			push(t, e, "pq.big.push", nil, string(payload))
			push(t, e, "q.big.push", nil, string(payload))

			for _, subject := range []string{
				"pq.big.peek.max", "pq.big.pop.min", "q.big.peek", "q.big.pop",
			} {
				reply := ok(t, e, subject, nil, "")
				if string(reply.Data) != string(payload) {
					t.Errorf("%s of %d bytes: other bytes came back", subject, size)
				}

				withID := reply.Header.Get(subjects.HeaderID) != ""
				if withID != (size <= withHeaders) {
					t.Errorf("%s of %d bytes: with an id: %t", subject, size, withID)
				}
			}
		}

		// An item's own headers count too, and come with it.
		h := nats.Header{"A": {strings.Repeat("a", 1000)}}
		size := limit - 1100
		push(t, e, "pq.big.push", h, strings.Repeat("x", size))

		got := ok(t, e, "pq.big.pop.min", nil, "")
		if len(got.Data) != size || got.Header.Get("A") != h.Get("A") {
			t.Errorf("%d bytes with headers %v", len(got.Data), got.Header)
		}
	})
}

// Service discovery finds the bridge by its name and ID, says where and on what store it runs,
// lists its endpoints, and counts their requests and errors.
func TestDiscovery(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Version = "1.2.3"
		o.Host = "machine-7"
	}})

	var ping micro.Ping
	discover(t, e, "$SRV.PING", &ping)
	if host := ping.Metadata[subjects.MetadataHost]; host != "machine-7" {
		t.Errorf("the bridge runs on %q", host)
	}
	if ping.Type != micro.PingResponseType || ping.Name != "pqbridge" || ping.Version != "1.2.3" ||
		ping.ID == "" || ping.Metadata == nil {
		t.Errorf("ping %+v", ping)
	}

	push(t, e, "pq.jobs.push", nil, "x")
	ok(t, e, "pq.jobs.pop.min", nil, "")
	refused(t, e, 400, "pq.jobs.pop.min", nats.Header{"Pq-Wait": {"?"}}, nil)
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil) // which is no error of the bridge

	for _, scope := range []string{"", ".pqbridge", ".pqbridge." + ping.ID} {
		var again micro.Ping
		discover(t, e, "$SRV.PING"+scope, &again)
		if again.ID != ping.ID {
			t.Errorf("ping%s from %s, want %s", scope, again.ID, ping.ID)
		}

		var info micro.Info
		discover(t, e, "$SRV.INFO"+scope, &info)
		if info.Type != micro.InfoResponseType || info.ID != ping.ID ||
			len(info.Endpoints) != len(e.Grammar.Endpoints()) {
			t.Errorf("info%s %+v", scope, info)
		}

		at, err := time.Parse(subjects.TimeLayout, info.Metadata[subjects.MetadataTime])
		if err != nil || time.Since(at).Abs() > testenv.Patience {
			t.Errorf("info%s: the time is %v, %v", scope, at, err)
		}

		store := info.Metadata[subjects.MetadataStore]
		if store == "" || store != ping.Metadata[subjects.MetadataStore] {
			t.Errorf("info%s: the store is %q", scope, store)
		}

		var stats micro.Stats
		discover(t, e, "$SRV.STATS"+scope, &stats)
		if stats.Type != micro.StatsResponseType || stats.ID != ping.ID || stats.Started.IsZero() {
			t.Errorf("stats%s %+v", scope, stats)
		}
		checkStats(t, stats)
	}
}

// A client that asks for them gets the figures of one or all queues, which a bridge knows without
// asking its store, and why it is not ready.
func TestBridgeStats(t *testing.T) {
	var refuse atomic.Bool
	refused := func(context.Context) error {
		if refuse.Load() {
			return kv.ErrUnavailable
		}
		return nil
	}

	store := hooked{read: refused, begin: refused}
	e := start(t, testenv.Options{
		Wrap:   store.wrap,
		Bridge: func(o *bridge.Options) { o.Engine = "mem" },
	})
	push(t, e, "pq.jobs.push", nats.Header{"Nats-Msg-Id": {"a"}}, "a")
	push(t, e, "pq.jobs.push", nats.Header{"Nats-Msg-Id": {"a"}}, "a") // a duplicate
	pushAll(t, e, "pq.jobs.push", "b", "c", "d", "e", "f")
	push(t, e, "q.mail.push", nil, "b")

	// Of the six items in "jobs", one is popped, one acknowledged, one becomes a dead letter, one
	// stays leased, and the rest is purged. Then a pop waits.
	ok(t, e, "pq.unused.len", nil, "")
	ok(t, e, "pq.jobs.pop.min", nil, "")
	acknowledge(t, e, leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "b"), "")
	acknowledge(t, e, leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "c"), "+TERM")
	leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "d")
	ok(t, e, "pq.jobs.purge", nil, "")
	publish(t, e, "pq.jobs.pop.min", subscribe(t, e.Conn, nats.NewInbox()).Subject,
		`{"expires":"1h"}`)

	ask := func(subject, payload string) (*subjects.BridgeStats, error) {
		return subjects.ParseBridgeStats(e.Request(subject, nil, []byte(payload)).Data)
	}
	waitUntil(t, "a pop that waits", func() bool {
		stats, err := ask("$SRV.STATS.pqbridge", string(subjects.StatsOfQueues))
		return err == nil && stats != nil && stats.Waiters == 1 && stats.Pending == 0
	})

	// From here on the store is away.
	refuse.Store(true)
	var plain micro.Stats
	reply := e.Request("$SRV.STATS.pqbridge", nil, []byte(subjects.StatsOfQueues))
	must(t, json.Unmarshal(reply.Data, &plain))

	same(t, "name", plain.Name, "pqbridge")

	got, err := subjects.ParseBridgeStats(reply.Data)
	must(t, err)
	if len(got.Queues) == 0 || got.Queues[0].Since.After(time.Now()) {
		t.Fatalf("%s: want queues, counted since the bridge started", reply.Data)
	}

	counted := func(q subjects.QueueTraffic) subjects.QueueTraffic {
		q.Since = got.Queues[0].Since
		return q
	}

	jobs := counted(traffic("pq", "jobs",
		subjects.Traffic{In: 6, Out: 2, Delivered: 4, Failed: 1, Dead: 1}))
	jobs.Waiters = 1
	mail := counted(traffic("q", "mail", subjects.Traffic{In: 1}))

	want := &subjects.BridgeStats{
		Ready: true, Waiters: 1, Store: "mem", Bridges: 1, Since: got.Queues[0].Since,
		Total: jobs.Windows, Queues: []subjects.QueueTraffic{jobs, mail},
	}

	want.Total.Add(&mail.Windows)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: want %+v", reply.Data, want)
	}

	// One queue, whether or not it has traffic. A queue with a bad name cannot exist.
	for payload, queues := range map[string][]subjects.QueueTraffic{
		string(subjects.StatsOfQueue(subjects.FIFO, "mail")): {mail},
		string(subjects.StatsOfQueue(subjects.Priority, "mail")): {
			counted(traffic("pq", "mail", subjects.Traffic{})),
		},
		`{"kind":"x","queue":"mail"}`: {},
		`{"kind":"pq","queue":"*"}`:   {},
	} {
		got, err := ask("$SRV.STATS.pqbridge", payload)
		must(t, err)
		if got == nil || !reflect.DeepEqual(got.Queues, queues) {
			t.Errorf("%s: %+v, want %+v", payload, got, queues)
		}
	}

	// Who does not ask for them gets none.
	for _, payload := range []string{
		"", "{}", "x", `{"queues":false}`, `{"queues":1}`, `{"queue":1}`,
	} {
		if got, err := ask("$SRV.STATS.pqbridge", payload); got != nil || err != nil {
			t.Errorf("%q: %+v, %v", payload, got, err)
		}
	}

	wantError(t, 503, "push", e.Request("pq.jobs.push", nil, nil))
	waitUntil(t, "a bridge that is not ready after a write that failed", func() bool {
		got, err = ask("$SRV.STATS", string(subjects.StatsOfQueues))
		must(t, err)
		return !got.Ready && strings.Contains(got.Why, "unavailable")
	})
}

// traffic is what a bridge says about a queue that it counts only lately.
func traffic(kind, queue string, n subjects.Traffic) subjects.QueueTraffic {
	return subjects.QueueTraffic{
		Kind:    kind,
		Queue:   queue,
		Windows: subjects.Windows{Traffic: n, Hour: n, Day: n},
	}
}

// The figures of a bridge have as many of the busiest queues as fit into a message, and say that
// there are more. The total counts all queues.
func TestBridgeStatsFitIntoAMessage(t *testing.T) {
	for _, most := range []int{16 << 10, 64 << 10, 128 << 10} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			e := start(t, testenv.Options{NATS: func(o *server.Options) {
				o.MaxPayload = int32(most)
			}})
			long := strings.Repeat("x", settings.MaxQueueName-len("0000"))

			const queues, busiest = 600, 7
			for i := range queues {
				push(t, e, fmt.Sprintf("pq.%s%04d.push", long, i), nil, "a")
			}

			push(t, e, fmt.Sprintf("pq.%s%04d.push", long, busiest), nil, "a")

			reply := e.Request("$SRV.STATS.pqbridge", nil, []byte(subjects.StatsOfQueues))

			got, err := subjects.ParseBridgeStats(reply.Data)
			must(t, err)
			if got == nil || !got.More || len(got.Queues) == 0 ||
				got.Queues[0].Queue != long+"0007" || got.Total.In != queues+1 {
				t.Fatalf("%d bytes, %+v: want the busiest first, and that there are more",
					len(reply.Data), got)
			}

			row, err := json.Marshal(got.Queues[len(got.Queues)-1])
			must(t, err)
			if left := most - len(reply.Data); left < 0 || left > len(row)+1 {
				t.Errorf("%d queues leave %d bytes, and one more has %d", len(got.Queues), left,
					len(row))
			}
		})
	}
}

// checkStats checks the statistics of the endpoints that TestDiscovery has used.
func checkStats(t *testing.T, stats micro.Stats) {
	t.Helper()
	seen := 0
	for _, s := range stats.Endpoints {
		requests, errors := 0, 0
		switch s.Name {
		case "push":
			requests = 1
		case "pop-min":
			requests, errors = 3, 1
			if s.Subject != "pq.*.pop.min" || !strings.Contains(s.LastError, "Pq-Wait") {
				t.Errorf("%+v", s)
			}
		default:
			continue
		}

		seen++
		if s.NumRequests != requests || s.NumErrors != errors || s.QueueGroup != "pq" ||
			s.ProcessingTime <= 0 || s.AverageProcessingTime > s.ProcessingTime {
			t.Errorf("%+v: want %d requests and %d errors", s, requests, errors)
		}
	}
	if seen != 2 {
		t.Errorf("the statistics have %d of the endpoints used", seen)
	}
}

// discover makes a request of service discovery.
func discover(t *testing.T, e *testenv.Env, subject string, into any) {
	t.Helper()
	reply := e.Request(subject, nil, nil)
	if err := json.Unmarshal(reply.Data, into); err != nil {
		t.Fatalf("%s: %q: %v", subject, reply.Data, err)
	}
}
