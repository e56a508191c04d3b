package bridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// kinds are the subjects of one queue of each kind.
var kinds = []struct{ queue, push, pop, peek, dead, peekDead string }{
	{"pq.jobs", "pq.jobs.push", "pq.jobs.pop.min", "pq.jobs.peek.min", "pq.jobs-dead.pop.min", "pq.jobs-dead.peek.min"},
	{"q.jobs", "q.jobs.enqueue", "q.jobs.dequeue", "q.jobs.peek", "q.jobs-dead.dequeue", "q.jobs-dead.peek"},
}

// configured sends a config and compares the reply.
func configured(t *testing.T, e *testenv.Env, queue, payload, want string) {
	t.Helper()
	m := e.Request(queue+".config", nil, []byte(payload))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil || string(m.Data) != want {
		t.Fatalf("%s.config %s: got %s, %v: want %s", queue, payload, m.Data, err, want)
	}
}

func TestConfig(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			configured(t, e, kind.queue, ``, `{}`)
			configured(t, e, kind.queue, `{"max_deliver":5,"ack_wait":"90s"}`, `{"ack_wait":"1m30s","max_deliver":5}`)
			configured(t, e, kind.queue, `{"backoff":["1s",1500000000,0],"dead_letter":"failed","max_deliver":null}`,
				`{"ack_wait":"1m30s","backoff":["1s","1.5s","0s"],"dead_letter":"failed"}`)
			configured(t, e, kind.queue, `{}`, `{"ack_wait":"1m30s","backoff":["1s","1.5s","0s"],"dead_letter":"failed"}`)
			for payload, words := range map[string]string{
				`x`:                                      "want a JSON object",
				`{"max_deliver":3,"later":1}`:            `unknown member "later": want a JSON object with members of ack_wait, backoff, max_deliver, dead_letter, ttl`,
				`{"max_deliver":3,"ack_wait":"1ms"}`:     "ack_wait: ",
				`{"max_deliver":3,"dead_letter":"jobs"}`: "dead_letter: \"jobs\" is the queue itself",
			} {
				err := refused(t, e, 400, kind.queue+".config", nil, []byte(payload))
				if !strings.Contains(err.Text, words) || !errors.Is(err, subjects.ErrOptions) && !errors.Is(err, fdbpq.ErrSettings) {
					t.Errorf("%s: %v: want %q", payload, err, words)
				}
			}
			refused(t, e, 400, kind.queue+".config", nats.Header{"Pq-Priority": {"1"}}, nil)
			configured(t, e, kind.queue, `{"ack_wait":null,"backoff":[],"dead_letter":null}`, `{}`)
			configured(t, e, kind.queue, `{"ack_wait":"90s"}`, `{"ack_wait":"1m30s"}`)

			// In force with the next lease that does not say how long it is.
			push(t, e, kind.push, nil, "a")
			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":0}`))
			same(t, "leased for", leasedUntil(t, m).Sub(clock.now()), 90*time.Second)
			acked(t, e, m.Reply, "")
			// A setting alone makes no leases.
			push(t, e, kind.push, nil, "b")
			if m := ok(t, e, kind.pop, nil, ""); m.Header.Get(subjects.HeaderDeliveries) != "" || string(m.Data) != "b" {
				t.Errorf("a plain pop got %q with reply subject %q", m.Data, m.Reply)
			}
		}
		publish(t, e, "pq.jobs.config", "", `{"max_deliver":1}`)
		configured(t, e, "pq.jobs", ``, `{"ack_wait":"1m30s"}`)
	}, clock.options)
}

// +NXT with "ack_wait":0 leases for as long as the settings say, whatever the lease had that it
// ends, also if it finds the next item at once, waits for it, or wants several.
func TestNextAsSettingsSay(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	wantLeft := func(m *nats.Msg, want time.Duration) {
		t.Helper()
		same(t, "leased for", leasedUntil(t, m).Sub(clock.now()), want)
	}
	configured(t, e, "pq.jobs", `{"ack_wait":"10m"}`, `{"ack_wait":"10m0s"}`)
	pushAll(t, e, "pq.jobs.push", "a", "b", "c", "d")
	a := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"2h"}`, "a")
	b := acked(t, e, a, "+NXT")
	wantLeft(b, 2*time.Hour)
	c := acked(t, e, b.Reply, `+NXT {"ack_wait":0}`)
	wantLeft(c, 10*time.Minute)
	d := acked(t, e, c.Reply, `+NXT {"ack_wait":"2h"}`)
	wantLeft(d, 2*time.Hour)
	replies := ask(t, e.Conn, d.Reply, `+NXT {"ack_wait":0,"expires":"1h","batch":2}`)
	for _, value := range []string{"e", "f"} {
		push(t, e, "pq.jobs.push", nil, value)
		wantLeft(next(t, replies), 10*time.Minute)
	}
	ended(t, replies, 2, "")
}

type died = subjects.DeadLetter

// wantDead compares what the headers of a dead letter say.
func wantDead(t *testing.T, m *nats.Msg, value string, want died) subjects.ItemInfo {
	t.Helper()
	wantData(t, m, value)
	info, err := subjects.ParseItemHeaders(m.Header)
	if err != nil || info.DeadLetter == nil || info.DeadLetter.At.IsZero() {
		t.Fatalf("%q with %v, %v: want when it died", m.Data, m.Header, err)
	}
	want.At = info.DeadLetter.At
	same(t, value, *info.DeadLetter, want)
	return info.ItemInfo
}

// Each way to a dead-letter queue, over NATS, also to a pop that waits there.
func TestDeadLetters(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			headers := nats.Header{"Trace": {"x"}, "Nats-Msg-Id": {"5"}, "Nats-TTL": {"1h"}}
			push(t, e, kind.push, headers, "a")
			before, err := subjects.ParseItemHeaders(e.Request(kind.peek, nil, nil).Header)
			if err != nil || before.PushedAt.IsZero() {
				t.Fatal(before, err)
			}
			a := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
			acked(t, e, a, `-NAK {"reason":"disk\r\nfull"}`)
			a = leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
			acked(t, e, a, "+TERM no such user: "+strings.Repeat("x", 300))
			isError(t, 409, a, e.Request(a, nil, []byte("+TERM")))
			isError(t, 409, a, e.Request(a, nil, []byte("+ACK")))
			reason := "no such user: " + strings.Repeat("x", 256-len("no such user: "))
			if m := ok(t, e, kind.peekDead, nil, ""); m.Header.Get("Trace") != "x" ||
				m.Header.Get("Nats-Msg-Id") != "" || m.Header.Get("Nats-TTL") != "" {
				t.Errorf("headers %v", m.Header)
			}
			info := wantDead(t, ok(t, e, kind.dead, nil, ""), "a",
				died{Queue: "jobs", Reason: reason, Deliveries: 2, Error: "disk  full"})
			if !info.PushedAt.Equal(before.PushedAt) || info.ID == before.ID || info.Priority != before.Priority {
				t.Errorf("%+v was %+v", info, before)
			}

			// Without a reason, and published.
			push(t, e, kind.push, nil, "b")
			ack := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "b")
			waits := ask(t, e.Conn, kind.dead, `{"expires":"1h"}`)
			wantMetric(t, e.Bridge, "pq_waiters", 1)
			must(t, e.Conn.Publish(ack, []byte("+TERM")))
			wantDead(t, next(t, waits), "b", died{Queue: "jobs", Reason: "terminated", Deliveries: 1})

			// After the last delivery, given back or run out, to another queue.
			configured(t, e, kind.queue, `{"max_deliver":2,"dead_letter":"failed"}`, `{"max_deliver":2,"dead_letter":"failed"}`)
			failed := strings.Replace(kind.pop, "jobs", "failed", 1)
			for _, last := range []string{"-NAK", "-NAK 1h", "+WPI"} {
				push(t, e, kind.push, nil, "c")
				acked(t, e, leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "c"), `-NAK {"snooze":true,"delay":0}`)
				acked(t, e, leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "c"), "-NAK")
				ack := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "c")
				if acked(t, e, ack, last); last == "+WPI" { // and then nothing more
					clock.step(2 * time.Hour)
					refused(t, e, 404, kind.pop, nil, nil) // it finds that the lease is over
				}
				isError(t, 409, ack, e.Request(ack, nil, nil))
				dead := died{Queue: "jobs", Reason: "max_deliver", Deliveries: 2}
				wantDead(t, ok(t, e, failed, nil, ""), "c", dead)
			}
			consistent(t, e)
		}
		// Only the service says that an item is a dead letter.
		refused(t, e, 400, "pq.jobs-dead.push", nats.Header{subjects.HeaderDeadQueue: {"jobs"}}, []byte("x"))
	}, clock.options)
}
