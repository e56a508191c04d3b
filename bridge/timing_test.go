package bridge_test

import (
	"fmt"
	"sync/atomic"
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
		for _, q := range []struct{ push, batch, pop, length string }{
			{"pq.jobs.push", "pq.jobs.push.batch", "pq.jobs.pop.min", "pq"},
			{"q.jobs.enqueue", "q.jobs.enqueue.batch", "q.jobs.dequeue", "q"},
		} {
			soon := time.Now().Add(300 * time.Millisecond)
			at := subjects.FormatSchedule(soon)
			push(t, e, q.push, nats.Header{"Pq-Delay": {"1h"}}, "in an hour")
			push(t, e, q.push, nats.Header{"Nats-Schedule": {at}, "Other": {"x"}}, "a")
			push(t, e, q.push, nats.Header{"nats-schedule": {"@at 1999-12-31T23:59:59+01:00"}}, "now")
			ok(t, e, q.batch, nil, frames(frame(0, "", "too"), frame(0, "Pq-Delay: 87600h\r\n", "in ten years"), frame(0, "Nats-Schedule: "+at+"\r\n", "b")))
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
			wantLen(t, e, q.length, "jobs", 0)
		}
		if n := delayedItems(t, e); n != 2 {
			t.Errorf("%d items of pq.jobs are delayed, want 2", n)
		}
	})
}

// A bad delay in a batch is refused with the number of the item, and nothing is pushed.
func TestBadDelayInABatch(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	for _, lines := range []string{"Pq-Delay: 5\r\n", "Nats-Schedule: @every 1s\r\n", "Pq-Delay: 1s\r\nPq-Delay: 2s\r\n"} {
		payload := frames(frame(0, "", "a"), frame(0, lines, "b"))
		if err := refused(t, e, 400, "pq.jobs.push.batch", nil, []byte(payload)); len(err.Text) < 8 || err.Text[:8] != "item 1: " {
			t.Errorf("%q: %v", lines, err)
		}
	}
	wantLen(t, e, "pq", "jobs", 0)
}

// A leased item that was delayed before has its first delivery, and its acknowledgement counts.
func TestLeaseOfADelayedPush(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nats.Header{"Pq-Delay": {"100ms"}}, "a")
	m := got(t, ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"10s","ack_wait":"1m"}`), "a")
	if n := m.Header.Get(subjects.HeaderDeliveries); n != fmt.Sprint(1) {
		t.Errorf("delivery %s, want 1", n)
	}
	acked(t, e, m.Reply, "+ACK")
	wantLen(t, e, "pq", "jobs", 0)
}

// Items expire as their headers or the settings say, delayed ones too, and not while they are leased. The
// header comes back with them.
func TestExpiringPushes(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		now := time.Now
		var ahead atomic.Int64
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: func(o *bridge.Options) {
			o.Now = func() time.Time { return now().Add(time.Duration(ahead.Load())) }
		}})
		configured(t, e, "pq.jobs", `{"ttl":"1h"}`, `{"ttl":"1h0m0s"}`)
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"30s"}}, "leased")
		ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"90m"}`, "leased")
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"120"}}, "two minutes")
		push(t, e, "pq.jobs.push", nats.Header{"nats-ttl": {"Never"}}, "never")
		push(t, e, "pq.jobs.push", nil, "an hour")
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1m30s"}, "Pq-Delay": {"80m"}}, "never seen")
		ok(t, e, "pq.jobs.push.batch", nil, frames(frame(0, "Nats-TTL: 2h\r\n", "two hours"), frame(0, "", "in a batch")))
		ahead.Store(int64(time.Minute))
		wantLen(t, e, "pq", "jobs", 5)
		ahead.Store(int64(2 * time.Minute))
		wantLen(t, e, "pq", "jobs", 4)
		wantMetric(t, e.Bridge, "pq_expired_total", 2)
		acked(t, e, ack, "+ACK")
		ahead.Store(int64(time.Hour + time.Minute))
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
	var ahead atomic.Int64
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}})
	configured(t, e, "pq.jobs", `{"max_deliver":1}`, `{"max_deliver":1}`)
	for _, value := range []string{"a", "b"} {
		push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1m"}}, value)
	}
	leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"2m"}`, "a")
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"2m"}`, "b")
	ahead.Store(int64(3 * time.Minute))
	acked(t, e, ack, "+TERM")
	wantLen(t, e, "pq", "jobs", 0)
	ahead.Store(int64(time.Hour))
	wantLen(t, e, "pq", "jobs-dead", 1)
	if m := ok(t, e, "pq.jobs-dead.pop.min", nil, ""); string(m.Data) != "b" || m.Header.Get("Nats-TTL") != "" {
		t.Errorf("the dead letter is %q %v", m.Data, m.Header)
	}
}
