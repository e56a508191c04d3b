package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

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
		if n := delayedItems(t, e); n != 2 {
			t.Errorf("%d items of pq.jobs are delayed, want 2", n)
		}
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
			if m := ok(t, e, "pq.jobs.pop.min", nil, ""); string(m.Data) != want {
				t.Errorf("popped %q, want %q", m.Data, want)
			}
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

// The clock of a bridge is stepped forward while pops wait: they get what is due by the clock at once, and
// not when the monotonic clock has come as far.
func TestWaitingWhileTheClockIsStepped(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		clock := &steppedClock{}
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})
		push(t, e, "pq.jobs.push", nil, "a")
		got(t, ask(t, e.Conn, "pq.jobs.pop.min", `{"ack_wait":"1h"}`), "a")
		waiting := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		clock.step(time.Hour)
		got(t, waiting, "a")
	})
}
