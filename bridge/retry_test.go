package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// After -NAK with a retry delay an item comes back after the queue's backoff, and without one after
// that delay, twice as long after each further delivery: also an item whose reply has no headers,
// and an acknowledgement in a header. The last delivery dies as ever.
func TestRetryDelay(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		large := strings.Repeat("x", int(e.Conn.MaxPayload()))
		for _, kind := range kinds {
			for _, value := range []string{"a", large} {
				push(t, e, kind.push, nil, value)

				for i, back := range []time.Duration{
					20 * time.Second, 40 * time.Second, time.Minute,
				} {
					m := ok(t, e, kind.pop, nil, `{"ack_wait":"1h"}`)
					wantData(t, m, value)
					if i == 1 {
						nak := `-NAK {"retry_delay":"20s","reason":"disk full"}`
						ok(t, e, m.Reply, nats.Header{subjects.HeaderAck: {nak}}, "")
					} else {
						acknowledge(t, e, m.Reply, `-NAK {"retry_delay":20000000000}`)
					}

					clock.step(back - time.Second)
					refused(t, e, 404, kind.pop, nil, nil)
					clock.step(time.Second)
				}

				configure(t, e, kind.queue, `{"backoff":["1m"],"max_deliver":5}`,
					`{"backoff":["1m0s"],"max_deliver":5}`)
				m := ok(t, e, kind.pop, nil, `{"ack_wait":"1h"}`)
				acknowledge(t, e, m.Reply, `-NAK {"retry_delay":"1s"}`)
				clock.step(time.Minute - time.Second)
				refused(t, e, 404, kind.pop, nil, nil)
				clock.step(time.Second)

				m = ok(t, e, kind.pop, nil, `{"ack_wait":"1h"}`)
				acknowledge(t, e, m.Reply, `-NAK {"retry_delay":"1s"}`)
				dead := strings.Replace(kind.pop, ".jobs.", ".jobs-dead.", 1)
				wantData(t, ok(t, e, dead, nil, ""), value)
				configure(t, e, kind.queue, `{"backoff":null,"max_deliver":null}`, `{}`)
			}
		}
	}, clock.options)
}

// A retry delay of 0 is no delay. One that is out of bounds, or beside another delay, is refused
// with what would be right, and the lease goes on.
func TestBadRetryDelays(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")

	const alone = "retry_delay with delay or snooze: want only one of them"
	for payload, text := range map[string]string{
		`{"retry_delay":"1s","delay":"1s"}`:  alone,
		`{"retry_delay":0,"delay":0}`:        alone,
		`{"retry_delay":"1s","snooze":true}`: alone,
		`{"retry_delay":"-1s"}`:              "retry_delay: -1s: want 0s to 87600h0m0s",
		`{"retry_delay":"88000h"}`:           "retry_delay: 88000h0m0s: want 0s to 87600h0m0s",
		`{"retry_delay":"soon"}`:             "retry_delay",
		`{"retryDelay":"1s"}`:                "members of delay, retry_delay, ",
	} {
		err := wantError(t, 400, payload, e.Request(ack, nil, []byte("-NAK "+payload)))
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: %v, want %s", payload, err, text)
		}
	}

	acknowledge(t, e, ack, `-NAK {"retry_delay":0}`)
	wantPopped(t, e, "pq.jobs.pop.min", "a")
}
