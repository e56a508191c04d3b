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

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// ok makes a request that must succeed.
func ok(t *testing.T, e *testenv.Env, subject string, headers nats.Header, payload string) *nats.Msg {
	t.Helper()
	reply := e.Request(subject, headers, []byte(payload))
	if err := bridge.ErrorFromHeaders(reply.Header); err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return reply
}

// refused makes a request that must fail with a code, and returns the error.
func refused(t *testing.T, e *testenv.Env, code int, subject string, headers nats.Header, payload []byte) *bridge.Error {
	t.Helper()
	return isError(t, code, subject, e.Request(subject, headers, payload))
}

func isError(t *testing.T, code int, subject string, reply *nats.Msg) *bridge.Error {
	t.Helper()
	err := bridge.ErrorFromHeaders(reply.Header)
	if err == nil {
		t.Fatalf("%s: succeeded with %.100q %v: want error %d", subject, reply.Data, reply.Header, code)
	}
	wire := err.(*bridge.Error)
	if wire.Code != code || wire.Text == "" {
		t.Errorf("%s: got %v: want %d and a text", subject, err, code)
	}
	told := subjects.Error{Code: subjects.Code(wire.Code), Text: wire.Text}
	if len(reply.Data) != 0 && string(reply.Data) != string(told.Payload()) {
		t.Errorf("%s: got %v with the payload %q: want the same error, or none", subject, err, reply.Data)
	}
	return wire
}

func push(
	t *testing.T, e *testenv.Env, subject string, h nats.Header, payload string,
) (p subjects.Pushed) {
	t.Helper()
	must(t, json.Unmarshal(ok(t, e, subject, h, payload).Data, &p))
	return p
}

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

func wantLen(t *testing.T, e *testenv.Env, prefix, queue string, n int) {
	t.Helper()
	got := string(ok(t, e, prefix+"."+queue+".len", nil, "").Data)
	if want := fmt.Sprintf(`{"queue":%q,"len":%d}`, queue, n); got != want {
		t.Errorf("len is %s, want %s", got, want)
	}
}

func TestPriorityQueue(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		wantLen(t, e, "pq", "jobs", 0)
		refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

		middle := push(t, e, "pq.jobs.push", nil, "middle")
		low := push(t, e, "pq.jobs.push.-9223372036854775808", nil, "low")
		high := push(t, e, "pq.jobs.push", nats.Header{"Pq-Priority": {"9223372036854775807"}}, "high")
		second := push(t, e, "pq.jobs.push.0", nats.Header{"Pq-Priority": {"0"}}, "second")
		empty := push(t, e, "pq.jobs.push.5", nil, "")
		if middle.Queue != "jobs" || *middle.Priority != 0 || *low.Priority != -9223372036854775808 {
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

func TestFIFOQueue(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		first := push(t, e, "q.mail.enqueue", nil, "first")
		second := push(t, e, "q.mail.enqueue", nil, "second")
		if first.Queue != "mail" || first.Priority != nil {
			t.Errorf("reply %+v", first)
		}
		wantLen(t, e, "q", "mail", 2)
		wantLen(t, e, "pq", "mail", 0)
		wantItem(t, e, "q.mail.peek", "first", first)
		wantItem(t, e, "q.mail.dequeue", "first", first)
		wantItem(t, e, "q.mail.dequeue", "second", second)
		refused(t, e, 404, "q.mail.dequeue", nil, nil)
		refused(t, e, 404, "q.mail.peek", nil, nil)
	})
}

func publish(t *testing.T, e *testenv.Env, subject, reply, payload string) {
	t.Helper()
	must(t, e.Conn.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(payload)}))
}

// Every payload that NATS carries comes back byte for byte, up to the limit, at which
// there is no room for our headers.
func TestPayloads(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine})
		limit := int(e.Conn.MaxPayload())
		for _, size := range []int{0, 1, 1000, 89_999, 90_000, 90_001, 500_000, limit - 500, limit - 1, limit} {
			payload := make([]byte, size)
			for i := range payload {
				payload[i] = byte(i * 7 >> 3)
			}
			push(t, e, "pq.big.push", nil, string(payload))
			push(t, e, "q.big.enqueue", nil, string(payload))
			for _, subject := range []string{"pq.big.peek.max", "pq.big.pop.min", "q.big.peek", "q.big.dequeue"} {
				reply := ok(t, e, subject, nil, "")
				if string(reply.Data) != string(payload) {
					t.Errorf("%s of %d bytes: other bytes came back", subject, size)
				}
				if withID := reply.Header.Get(subjects.HeaderID) != ""; withID != (size <= limit-500) {
					t.Errorf("%s of %d bytes: with an id: %t", subject, size, withID)
				}
			}
		}
		// Headers count too.
		h := nats.Header{"A": {strings.Repeat("a", 1000)}}
		push(t, e, "pq.big.push", h, strings.Repeat("x", limit-1100))
		if got := ok(t, e, "pq.big.pop.min", nil, ""); len(got.Data) != limit-1100 || got.Header.Get("A") != h.Get("A") {
			t.Errorf("%d bytes with headers %v", len(got.Data), got.Header)
		}
	})
}

func TestDiscovery(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Version = "1.2.3" }})
	var ping micro.Ping
	discover(t, e, "$SRV.PING", &ping)
	if ping.Type != micro.PingResponseType || ping.Name != "pqbridge" || ping.Version != "1.2.3" || ping.ID == "" || ping.Metadata == nil {
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
		if info.Type != micro.InfoResponseType || info.ID != ping.ID || len(info.Endpoints) != len(e.Grammar.Endpoints()) {
			t.Errorf("info%s %+v", scope, info)
		}
		if at, err := time.Parse(subjects.TimeLayout, info.Metadata[subjects.MetadataTime]); err != nil || time.Since(at).Abs() > testenv.Patience {
			t.Errorf("info%s: the time is %v, %v", scope, at, err)
		}
		if store := info.Metadata[subjects.MetadataStore]; store == "" || store != ping.Metadata[subjects.MetadataStore] {
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

// Who asks for it learns what a bridge knows without asking its store.
func TestBridgeStats(t *testing.T) {
	var refuse atomic.Bool
	refused := func(context.Context) error {
		if refuse.Load() {
			return kv.ErrUnavailable
		}
		return nil
	}
	store := hooked{read: refused, begin: refused}
	e := start(t, testenv.Options{Wrap: store.wrap, Bridge: func(o *bridge.Options) { o.Engine = "mem" }})
	push(t, e, "pq.jobs.push", nats.Header{"Nats-Msg-Id": {"a"}}, "a")
	push(t, e, "pq.jobs.push", nats.Header{"Nats-Msg-Id": {"a"}}, "a") // a duplicate
	pushAll(t, e, "pq.jobs.push", "b", "c", "d", "e", "f")
	push(t, e, "q.mail.enqueue", nil, "b")
	ok(t, e, "pq.unused.len", nil, "")
	ok(t, e, "pq.jobs.pop.min", nil, "")
	acked(t, e, leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "b"), "")
	acked(t, e, leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "c"), "+TERM")
	leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "d")
	ok(t, e, "pq.jobs.purge", nil, "")
	publish(t, e, "pq.jobs.pop.min", subscribe(t, e.Conn, nats.NewInbox()).Subject, `{"expires":"1h"}`)
	comes(t, "a pop that waits", func() bool {
		stats, err := subjects.ParseBridgeStats(e.Request("$SRV.STATS.pqbridge", nil, []byte(subjects.StatsOfQueues)).Data)
		return err == nil && stats != nil && stats.Waiters == 1 && stats.Pending == 0
	})

	refuse.Store(true)
	var plain micro.Stats
	reply := e.Request("$SRV.STATS.pqbridge", nil, []byte(subjects.StatsOfQueues))
	must(t, json.Unmarshal(reply.Data, &plain))
	same(t, "name", plain.Name, "pqbridge")
	got, err := subjects.ParseBridgeStats(reply.Data)
	must(t, err)
	want := &subjects.BridgeStats{Ready: true, Waiters: 1, Store: "mem", Queues: []subjects.QueueTraffic{
		{Kind: "pq", Queue: "jobs", In: 6, Out: 3}, {Kind: "q", Queue: "mail", In: 1},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: want %+v", reply.Data, want)
	}
	for _, payload := range []string{"", "{}", "x", `{"queues":false}`, `{"queues":1}`} {
		reply := e.Request("$SRV.STATS.pqbridge", nil, []byte(payload))
		if got, err := subjects.ParseBridgeStats(reply.Data); got != nil || err != nil {
			t.Errorf("%q: %+v, %v", payload, got, err)
		}
	}

	isError(t, 503, "push", e.Request("pq.jobs.push", nil, nil))
	comes(t, "a bridge that is not ready after a write that failed", func() bool {
		got, err = subjects.ParseBridgeStats(e.Request("$SRV.STATS", nil, []byte(subjects.StatsOfQueues)).Data)
		must(t, err)
		return !got.Ready && strings.Contains(got.Why, "unavailable")
	})
}

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

func discover(t *testing.T, e *testenv.Env, subject string, into any) {
	t.Helper()
	reply := e.Request(subject, nil, nil)
	if err := json.Unmarshal(reply.Data, into); err != nil {
		t.Fatalf("%s: %q: %v", subject, reply.Data, err)
	}
}
