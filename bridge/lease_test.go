package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leased pops with options, and returns the item and the subject of its acknowledgements.
func leased(t *testing.T, e *testenv.Env, subject, options, want string) (ack string) {
	t.Helper()
	m := e.Request(subject, nil, []byte(options))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil || string(m.Data) != want {
		t.Fatalf("%s %s: got %q, %v: want %q", subject, options, m.Data, err, want)
	}
	until, err := time.Parse(subjects.TimeLayout, m.Header.Get(subjects.HeaderLeaseUntil))
	if err != nil || m.Header.Get(subjects.HeaderDeliveries) == "" || !strings.Contains(m.Reply, ".ack.") {
		t.Fatalf("%s: headers %v, reply subject %q, %v", subject, m.Header, m.Reply, err)
	}
	if left := time.Until(until); left <= 0 || left > 12*time.Hour {
		t.Errorf("%s: leased for %v", subject, left)
	}
	return m.Reply
}

// acked sends an acknowledgement and checks that it is accepted.
func acked(t *testing.T, e *testenv.Env, ack, payload string) *nats.Msg {
	t.Helper()
	m := e.Request(ack, nil, []byte(payload))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil {
		t.Fatalf("%s %q: %v", ack, payload, err)
	}
	return m
}

// A worker's day: leases, acknowledgements of all kinds, redelivery at the old place.
func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			pushAll(t, e, kind.push, "a", "b", "c")
			a := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a")
			if m := acked(t, e, a, "+WPI"); m.Header.Get(subjects.HeaderLeaseUntil) == "" {
				t.Errorf("+WPI: %v", m.Header)
			}
			acked(t, e, a, "-NAK")
			isError(t, 409, a, e.Request(a, nil, nil))
			b := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a") // at its old place
			// Acknowledge and take the next in one request.
			m := e.Request(b, nil, []byte("+NXT"))
			if string(m.Data) != "b" || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("+NXT: got %q, %v", m.Data, m.Header)
			}
			isError(t, 409, b, e.Request(b, nil, []byte("+NXT")))
			acked(t, e, m.Reply, "+ACK")
			isError(t, 409, m.Reply, e.Request(m.Reply, nil, []byte("+ACK")))
			// Published acknowledgements count as well.
			c := leased(t, e, kind.pop, `{"ack_wait":0}`, "c")
			must(t, e.Conn.Publish(c, nil))
			comes(t, "the end of the lease", func() bool { return bridge.ErrorFromHeaders(e.Request(c, nil, []byte("+WPI")).Header) != nil })
			refused(t, e, 404, kind.pop, nil, []byte(`{"ack_wait":"1s"}`))
			consistent(t, e)
		}
	})
}

// A lease that runs out, or an item that was given back with a delay, comes back at its time.
func TestLeaseEnds(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	began := time.Now()
	first := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"200ms"}`, "a")
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
	var again *nats.Msg
	testenv.Eventually(t, func() error {
		again = e.Request("pq.jobs.pop.max", nil, []byte(`{"ack_wait":"1h"}`))
		return bridge.ErrorFromHeaders(again.Header)
	})
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("it came back after %v", took)
	}
	if again.Header.Get(subjects.HeaderDeliveries) != "2" {
		t.Errorf("headers %v", again.Header)
	}
	isError(t, 409, first, e.Request(first, nil, nil))
	began = time.Now()
	acked(t, e, again.Reply, `-NAK {"delay":"150ms","snooze":true}`)
	testenv.Eventually(t, func() error {
		again = e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
		return bridge.ErrorFromHeaders(again.Header)
	})
	if took := time.Since(began); took < 150*time.Millisecond || again.Header.Get(subjects.HeaderDeliveries) != "2" {
		t.Errorf("after %v: headers %v", took, again.Header)
	}
}

// Options and acknowledgements that are wrong change nothing, and say what would be right.
func TestBadLeaseRequests(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	for _, options := range []string{`x`, `[]`, `{"batch":0}`, `{"batch":1001}`, `{"ack_wait":"1ms"}`, `{"unknown":1}`, `{"batch":1} ` + "\x00"} {
		refused(t, e, 400, "pq.jobs.pop.min", nil, []byte(options))
	}
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1m"}`, "a")
	for _, payload := range []string{"ACK", "+ACK please", "-NAK never", "+NXT 0", `-NAK {"delay":-1}`} {
		isError(t, 400, ack, e.Request(ack, nil, []byte(payload)))
	}
	for _, subject := range []string{"pq.jobs.ack.x", "pq.jobs.ack." + strings.Repeat("x", 80), "q.jobs.ack.-"} {
		refused(t, e, 400, subject, nil, nil)
	}
	refused(t, e, 400, "pq.jobs.ack", nil, nil)
	refused(t, e, 400, ack, nats.Header{"Pq-Priority": {"5"}}, nil)
	// A token of another queue, and one that was never given.
	refused(t, e, 409, strings.Replace(ack, "pq.jobs.", "pq.other.", 1), nil, nil)
	refused(t, e, 409, "pq.jobs.ack."+fdbpq.Token{Fence: 7}.String(), nil, nil)
	acked(t, e, ack, "")
}

// What a program stores under the protocol's own names is not sent: an item is never taken for
// the end of a batch.
func TestReservedHeadersOfStoredItems(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	store(t, e, 1, fdbpq.Message{Value: []byte("x"), Headers: map[string][]string{
		"Pq-Batch-Count": {"1"}, "pq-deliveries": {"7"}, "Kept": {"yes"},
	}})
	m := e.Request("pq.jobs.pop.min", nil, nil)
	if string(m.Data) != "x" || m.Header.Get(subjects.HeaderBatchCount) != "" || len(m.Header["pq-deliveries"]) > 0 || m.Header.Get("Kept") != "yes" {
		t.Errorf("got %q, %v", m.Data, m.Header)
	}
}

// Items that are pushed with a delay are held back, alone and in batches, in both kinds of queues.
// The header does not come back with them.
func TestDelayedPushes(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, q := range kinds {
			soon := time.Now().Add(300 * time.Millisecond)
			at := subjects.FormatSchedule(soon)
			push(t, e, q.push, nats.Header{"Pq-Delay": {"1h"}}, "in an hour")
			push(t, e, q.push, nats.Header{"Nats-Schedule": {at}, "Other": {"x"}}, "a")
			push(t, e, q.push, nats.Header{"nats-schedule": {"@at 1999-12-31T23:59:59+01:00"}}, "now")
			ok(t, e, q.push+".batch", nil, frames(frame(0, "", "too"), frame(0, "Pq-Delay: 87600h\r\n", "in ten years"), frame(0, "Nats-Schedule: "+at+"\r\n", "b")))
			push(t, e, q.push, nats.Header{"Pq-Delay": {"0s"}}, "also")
			for _, want := range []string{"now", "too", "also"} {
				if m := ok(t, e, q.pop, nil, ""); string(m.Data) != want {
					t.Errorf("popped %q, want %q", m.Data, want)
				} else {
					wantHeaders(t, m, nats.Header{})
				}
			}
			replies := ask(t, e.Conn, q.pop, `{"batch":2,"expires":"10s"}`)
			m := got(t, replies, "a")
			if time.Now().Before(soon) {
				t.Errorf("it came before %v", soon)
			}
			wantHeaders(t, m, nats.Header{"Other": {"x"}})
			got(t, replies, "b")
			ended(t, replies, 2, "")
			wantLen(t, e, strings.TrimSuffix(q.queue, ".jobs"), "jobs", 0)
		}
		same(t, "delayed items of pq.jobs", delayedItems(t, e), 2)
	})
}

// Items expire as their headers or the settings say, delayed ones too, and not while they are leased. The
// header comes back with them.
func TestExpiringPushes(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		var clock skewed
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: func(o *bridge.Options) { o.Now = clock.now }})
		configured(t, e, "pq.jobs", `{"ttl":"1h"}`, `{"ttl":"1h0m0s"}`)
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"30s"}}, "leased")
		ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"90m"}`, "leased")
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"120"}}, "two minutes")
		push(t, e, "pq.jobs.push", nats.Header{"nats-ttl": {"Never"}}, "never")
		push(t, e, "pq.jobs.push", nil, "an hour")
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1m30s"}, "Pq-Delay": {"80m"}}, "never seen")
		ok(t, e, "pq.jobs.push.batch", nil, frames(frame(0, "Nats-TTL: 2h\r\n", "two hours"), frame(0, "", "in a batch")))
		clock.ahead.Store(int64(time.Minute))
		wantLen(t, e, "pq", "jobs", 5)
		clock.ahead.Store(int64(2 * time.Minute))
		wantLen(t, e, "pq", "jobs", 4)
		wantMetric(t, e.Bridge, "pq_expired_total", 2)
		acked(t, e, ack, "+ACK")
		clock.ahead.Store(int64(time.Hour + time.Minute))
		for want, header := range map[string]nats.Header{"never": {"nats-ttl": {"Never"}}} {
			wantHeaders(t, ok(t, e, "pq.jobs.peek.min", nil, ""), header)
			wantData(t, ok(t, e, "pq.jobs.pop.min", nil, ""), want)
		}
		if m := ok(t, e, "pq.jobs.pop.min", nil, ""); string(m.Data) != "two hours" || m.Header.Get("Nats-TTL") != "2h" {
			t.Errorf("popped %q %v", m.Data, m.Header)
		}
		wantLen(t, e, "pq", "jobs", 0)
		wantMetric(t, e.Bridge, "pq_expired_total", 4)
	})
}

// An item whose lease runs out after it has expired is neither delivered again nor a dead letter; +TERM
// makes it one, which does not expire and comes without the header.
func TestExpiryAndDeadLetters(t *testing.T) {
	var clock skewed
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Now = clock.now }})
	configured(t, e, "pq.jobs", `{"max_deliver":1}`, `{"max_deliver":1}`)
	for _, value := range []string{"a", "b"} {
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1m"}}, value)
	}
	leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"2m"}`, "a")
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"2m"}`, "b")
	clock.ahead.Store(int64(3 * time.Minute))
	acked(t, e, ack, "+TERM")
	wantLen(t, e, "pq", "jobs", 0)
	clock.ahead.Store(int64(time.Hour))
	wantLen(t, e, "pq", "jobs-dead", 1)
	if m := ok(t, e, "pq.jobs-dead.pop.min", nil, ""); string(m.Data) != "b" || m.Header.Get("Nats-TTL") != "" {
		t.Errorf("the dead letter is %q %v", m.Data, m.Header)
	}
}
