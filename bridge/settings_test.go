package bridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// kinds are the subjects of one queue of each kind.
var kinds = []struct{ queue, push, pop, peek, dead, peekDead string }{
	{
		queue:    "pq.jobs",
		push:     "pq.jobs.push",
		pop:      "pq.jobs.pop.min",
		peek:     "pq.jobs.peek.min",
		dead:     "pq.jobs-dead.pop.min",
		peekDead: "pq.jobs-dead.peek.min",
	},
	{
		queue:    "q.jobs",
		push:     "q.jobs.push",
		pop:      "q.jobs.pop",
		peek:     "q.jobs.peek",
		dead:     "q.jobs-dead.pop",
		peekDead: "q.jobs-dead.peek",
	},
}

// configure sends a config and compares the reply.
func configure(t *testing.T, e *testenv.Env, queue, payload, want string) {
	t.Helper()
	m := e.Request(queue+".config", nil, []byte(payload))
	if err := replyError(m.Header); err != nil || string(m.Data) != want {
		t.Fatalf("%s.config %s: got %s, %v: want %s", queue, payload, m.Data, err, want)
	}
}

// A config changes the settings that it names, says what they all are, and counts from the next
// lease on. A bad one changes nothing.
func TestConfig(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			configure(t, e, kind.queue, ``, `{}`)
			configure(t, e, kind.queue, `{"max_deliver":5,"ack_wait":"90s"}`,
				`{"ack_wait":"1m30s","max_deliver":5}`)
			configure(t, e, kind.queue,
				`{"backoff":["1s",1500000000,0],"dead_letter":"failed","max_deliver":null}`,
				`{"ack_wait":"1m30s","backoff":["1s","1.5s","0s"],"dead_letter":"failed"}`)
			configure(t, e, kind.queue, `{}`,
				`{"ack_wait":"1m30s","backoff":["1s","1.5s","0s"],"dead_letter":"failed"}`)

			for _, test := range []struct{ payload, words string }{
				{`x`, "want a JSON object"},
				{
					`{"max_deliver":3,"later":1}`,
					`unknown member "later": want a JSON object with members of ack_wait, ` +
						`backoff, max_deliver, dead_letter, ttl`,
				},
				{`{"max_deliver":3,"ack_wait":"1ms"}`, "ack_wait: "},
				{
					`{"max_deliver":3,"dead_letter":"jobs"}`,
					`dead_letter: "jobs" is the queue itself`,
				},
			} {
				err := refused(t, e, 400, kind.queue+".config", nil, []byte(test.payload))
				known := errors.Is(err, subjects.ErrOptions) || errors.Is(err, fdbpq.ErrSettings)
				if !known || !strings.Contains(err.Text, test.words) {
					t.Errorf("%s: %v: want %q", test.payload, err, test.words)
				}
			}
			refused(t, e, 400, kind.queue+".config", nats.Header{"Pq-Priority": {"1"}}, nil)

			configure(t, e, kind.queue, `{"ack_wait":null,"backoff":[],"dead_letter":null}`, `{}`)
			configure(t, e, kind.queue, `{"ack_wait":"90s"}`, `{"ack_wait":"1m30s"}`)

			// In force with the next lease that does not say how long it is.
			push(t, e, kind.push, nil, "a")
			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":0}`))
			same(t, "leased for", leasedUntil(t, m).Sub(clock.now()), 90*time.Second)

			acknowledge(t, e, m.Reply, "")

			// A setting alone makes no leases.
			push(t, e, kind.push, nil, "b")
			m = ok(t, e, kind.pop, nil, "")
			if m.Header.Get(subjects.HeaderDeliveries) != "" || string(m.Data) != "b" {
				t.Errorf("a plain pop got %q with reply subject %q", m.Data, m.Reply)
			}
		}

		publish(t, e, "pq.jobs.config", "", `{"max_deliver":1}`)
		configure(t, e, "pq.jobs", ``, `{"ack_wait":"1m30s"}`)
	}, clock.options)
}

// +NXT with "ack_wait":0 leases for as long as the settings say, whatever the lease before had,
// whether it finds the next item at once, waits for it, or asks for several.
func TestNextAsSettingsSay(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})

	wantLeft := func(m *nats.Msg, want time.Duration) {
		t.Helper()
		same(t, "leased for", leasedUntil(t, m).Sub(clock.now()), want)
	}

	configure(t, e, "pq.jobs", `{"ack_wait":"10m"}`, `{"ack_wait":"10m0s"}`)
	pushAll(t, e, "pq.jobs.push", "a", "b", "c", "d")
	a := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"2h"}`, "a")

	b := acknowledge(t, e, a, "+NXT")
	wantLeft(b, 2*time.Hour)

	c := acknowledge(t, e, b.Reply, `+NXT {"ack_wait":0}`)
	wantLeft(c, 10*time.Minute)

	d := acknowledge(t, e, c.Reply, `+NXT {"ack_wait":"2h"}`)
	wantLeft(d, 2*time.Hour)

	replies := ask(t, e.Conn, d.Reply, `+NXT {"ack_wait":0,"expires":"1h","batch":2}`)
	for _, value := range []string{"e", "f"} {
		push(t, e, "pq.jobs.push", nil, value)
		wantLeft(next(t, replies), 10*time.Minute)
	}

	wantEnd(t, replies, 2, "")
}

// The reply to a lease whose request does not say how long it lasts says so, and how many
// deliveries there may be. So a worker need not read the settings.
func TestRepliesSayHowLongLeasesAre(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		pushAll(t, e, "pq.jobs.push", "1", "2", "3", "4", "5", "6", "7")
		want := func(m *nats.Msg, ackWait, maxDeliver string) {
			t.Helper()
			same(t, "Pq-Ack-Wait", m.Header.Get(subjects.HeaderAckWait), ackWait)
			same(t, "Pq-Max-Deliver", m.Header.Get(subjects.HeaderMaxDeliver), maxDeliver)
		}

		// Without settings.
		m := ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":0}`)
		want(m, "30s", "")
		want(ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1h"}`), "", "")

		// With settings.
		configure(t, e, "pq.jobs", `{"ack_wait":"90s","max_deliver":5}`,
			`{"ack_wait":"1m30s","max_deliver":5}`)
		want(ok(t, e, "pq.jobs.pop.max", nil, `{"ack_wait":0}`), "1m30s", "5")
		want(ok(t, e, "pq.jobs.pop.max", nil, `{"ack_wait":"2h"}`), "", "5")

		// +NXT keeps the length of the lease that it ends, unless it says otherwise.
		m = ok(t, e, m.Reply, nil, "+NXT")
		want(m, "30s", "5")

		m = ok(t, e, m.Reply, nil, `+NXT {"ack_wait":0}`)
		want(m, "1m30s", "5")
		want(ok(t, e, m.Reply, nil, "+WPI"), "1m30s", "")

		want(ok(t, e, "pq.jobs.peek.max", nil, ""), "", "")
	})
}

// In frames, and in a batch, each leased item says how long its lease is.
func TestFramesSayHowLongLeasesAre(t *testing.T) {
	e := start(t, testenv.Options{})
	configure(t, e, "pq.jobs", `{"ack_wait":"1500ms"}`, `{"ack_wait":"1.5s"}`)
	pushAll(t, e, "pq.jobs.push", "a", "b")

	m := ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":0,"batch":2,"frames":true}`)

	frames, err := subjects.ParseFrames(m.Data)
	must(t, err)

	for i, frame := range frames {
		if !strings.Contains(string(frame.Headers), "\r\nPq-Ack-Wait: 1.5s\r\n") {
			t.Errorf("frame %d: headers %q", i, frame.Headers)
		}
	}
	same(t, "items", len(frames), 2)
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

// A dead letter says why it died, however it came to the dead-letter queue, and wakes a pop that
// waits there.
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

			a := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
			acknowledge(t, e, a, `-NAK {"reason":"disk\r\nfull"}`)
			a = leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
			acknowledge(t, e, a, "+TERM no such user: "+strings.Repeat("x", 300))

			wantError(t, 409, a, e.Request(a, nil, []byte("+TERM")))
			wantError(t, 409, a, e.Request(a, nil, []byte("+ACK")))

			reason := "no such user: " + strings.Repeat("x", 256-len("no such user: "))
			m := ok(t, e, kind.peekDead, nil, "")
			if m.Header.Get("Trace") != "x" ||
				m.Header.Get("Nats-Msg-Id") != "" || m.Header.Get("Nats-TTL") != "" {
				t.Errorf("headers %v", m.Header)
			}

			info := wantDead(t, ok(t, e, kind.dead, nil, ""), "a",
				died{Queue: "jobs", Reason: reason, Deliveries: 2, Error: "disk  full"})
			if !info.PushedAt.Equal(before.PushedAt) || info.ID != before.ID ||
				info.Place == "" || info.Priority != before.Priority {
				t.Errorf("%+v was %+v", info, before)
			}

			// Without a reason, and published.
			push(t, e, kind.push, nil, "b")
			ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "b")
			waits := ask(t, e.Conn, kind.dead, `{"expires":"1h"}`)

			wantMetric(t, e.Bridge, "pq_waiters", 1)
			must(t, e.Conn.Publish(ack, []byte("+TERM")))
			wantDead(t, next(t, waits), "b",
				died{Queue: "jobs", Reason: "terminated", Deliveries: 1})

			// After the last delivery, given back or run out, to another queue.
			configure(t, e, kind.queue, `{"max_deliver":2,"dead_letter":"failed"}`,
				`{"max_deliver":2,"dead_letter":"failed"}`)
			failed := strings.Replace(kind.pop, "jobs", "failed", 1)

			for _, last := range []string{"-NAK", "-NAK 1h", "+WPI"} {
				push(t, e, kind.push, nil, "c")
				acknowledge(t, e, leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "c"),
					`-NAK {"snooze":true,"delay":0}`)
				acknowledge(t, e, leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "c"), "-NAK")
				ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "c")

				if acknowledge(t, e, ack, last); last == "+WPI" { // and then nothing more
					clock.step(2 * time.Hour)
					refused(t, e, 404, kind.pop, nil, nil) // it finds that the lease is over
				}
				wantError(t, 409, ack, e.Request(ack, nil, nil))

				dead := died{Queue: "jobs", Reason: "max_deliver", Deliveries: 2}
				wantDead(t, ok(t, e, failed, nil, ""), "c", dead)
			}
			checkStore(t, e)
		}
		// Only the service says that an item is a dead letter.
		refused(t, e, 400, "pq.jobs-dead.push", nats.Header{subjects.HeaderDeadQueue: {"jobs"}},
			[]byte("x"))
	}, clock.options)
}
