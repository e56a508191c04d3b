package bridge_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leave ends a subscription, once the server knows.
func leave(t *testing.T, e *testenv.Env, s *nats.Subscription) {
	t.Helper()
	if err := errors.Join(s.Unsubscribe(), e.Conn.Flush()); err != nil {
		t.Fatal(err)
	}
}

// An item that a waiting pop did not receive goes to the next in line at once: as it was, and
// nothing is counted.
func TestGoneWaiterMakesRoomForTheNext(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		back := 0
		// The first asks for one item, or for more than there will be.
		for _, options := range []string{`{"expires":"1h"}`, `{"expires":"1h","batch":5}`, `{"expires":"1h","batch":5,"no_wait":true}`} {
			gone := asked(t, e, "jobs", "pop.min", options)
			plain := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
			lease := asked(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1m"}`)
			leave(t, e, gone)
			pushed := push(t, e, "pq.jobs.push.3", nil, "a")
			if m := got(t, plain, "a"); m.Header.Get(subjects.HeaderID) != pushed.ID || m.Header.Get(subjects.HeaderPriority) != "3" {
				t.Errorf("%s: got %v, pushed %v", options, m.Header, pushed)
			}
			back++
			pushed = push(t, e, "pq.jobs.push", nil, "b")
			m := got(t, lease, "b")
			if m.Header.Get(subjects.HeaderID) != pushed.ID || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("%s: leased %v, pushed %v", options, m.Header, pushed)
			}
			acked(t, e, m.Reply, "")
			wantMetric(t, e.Bridge, "pq_waiters", 0)
			wantMetric(t, e.Bridge, noResponders, float64(back)) // once each
		}
		wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
		consistent(t, e)
	})
}

// A pop of several items keeps those that arrived, and what comes after its end goes to others.
func TestGoneWaiterAfterSomeItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		gone := asked(t, e, "jobs", "pop.min", `{"expires":"1h","batch":9}`)
		push(t, e, "pq.jobs.push", nil, "a")
		got(t, gone, "a")
		leave(t, e, gone)
		push(t, e, "pq.jobs.push", nil, "b")
		wantMetric(t, e.Bridge, noResponders, 1)
		wantMetric(t, e.Bridge, "pq_waiters", 0)
		push(t, e, "pq.jobs.push", nil, "c")
		wantPopped(t, e, "pq.jobs.pop.min", "b", "c")
	})
}

// A pop of several items that nobody receives leaves the queue as it was, with nobody in line.
func TestGoneWaiterAlone(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		pushAll(t, e, "pq.jobs.push", "a", "b")
		publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), `{"expires":"1h","batch":5}`)
		wantMetric(t, e.Bridge, noResponders, 2)
		wantMetric(t, e.Bridge, "pq_waiters", 0)
		wantPopped(t, e, "pq.jobs.pop.min", "a", "b")
		wantMetric(t, e.Bridge, noResponders, 2)
	})
}

// Heartbeats that nobody hears end a pop that waits, also one that leases.
func TestGoneWaiterMissesItsHeartbeat(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	for _, options := range []string{
		`{"expires":"1h","idle_heartbeat":"100ms"}`,
		`{"expires":"1h","idle_heartbeat":"100ms","ack_wait":"1m"}`,
		`{"expires":"1h","idle_heartbeat":"100ms","ack_wait":"1m","batch":3}`,
	} {
		there := asked(t, e, "jobs", "pop.max", options)
		gone := asked(t, e, "jobs", "pop.max", options)
		leave(t, e, gone)
		waiters(t, e.Bridge, "jobs", 1)
		for range 3 { // the other one goes on
			if m := next(t, there); !subjects.IsHeartbeat(m.Header) {
				t.Fatalf("%s: got %q %v, want a heartbeat", options, m.Data, m.Header)
			}
		}
		waiters(t, e.Bridge, "jobs", 1)
		leave(t, e, there)
		waiters(t, e.Bridge, "jobs", 0)
	}
	wantMetric(t, e.Bridge, "pq_waiters", 0)
	wantMetric(t, e.Bridge, noResponders, 0) // there were no items
	wantMetric(t, e.Bridge, "pq_unanswered_total", 0)
}

// NATS may also refuse what a pop that waits has got. That ends it too.
func TestDeniedWaiter(t *testing.T) {
	e := testenv.New(t, restricted(inboxesOnly(), testenv.Options{}))
	publish(t, e, "pq.jobs.pop.min", "elsewhere", `{"expires":"1h","batch":5}`)
	waiters(t, e.Bridge, "jobs", 1)
	push(t, e, "pq.jobs.push", nil, "a")
	waiters(t, e.Bridge, "jobs", 0)
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="denied"}`, 1)
	wantPopped(t, e, "pq.jobs.pop.min", "a")
}

// died checks that a message is a dead letter of the queue "jobs".
func died(t *testing.T, m *nats.Msg, reason string) {
	t.Helper()
	info, err := subjects.ParseItemHeaders(m.Header)
	if err != nil || info.DeadLetter == nil || info.DeadLetter.Queue != "jobs" || info.DeadLetter.Reason != reason {
		t.Errorf("%q with %v, %v: want a dead letter because of %q", m.Data, m.Header, err, reason)
	}
}

// Whoever waits for dead letters gets them when they die: terminated, or because nobody settled
// the last delivery, also while others wait for the queue that they come from.
func TestWaitForDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		push(t, e, "pq.jobs.push", nil, "a")
		ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
		dead := asked(t, e, "jobs-dead", "pop.min", `{"expires":"1h"}`)
		acked(t, e, ack, "+TERM broken")
		died(t, got(t, dead, "a"), "broken")

		configured(t, e, "pq.jobs", `{"max_deliver":1}`, `{"max_deliver":1}`)
		dead = asked(t, e, "jobs-dead", "pop.min", `{"expires":"1h"}`)
		push(t, e, "pq.jobs.push", nil, "b")
		began := time.Now()
		leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"200ms"}`, "b")
		alive := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		died(t, got(t, dead, "b"), "max_deliver")
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("it died after %v", took)
		}
		waiters(t, e.Bridge, "jobs", 1) // it got nothing
		dead = asked(t, e, "jobs-dead", "pop.min", `{"expires":"1h","batch":2,"ack_wait":"1m"}`)
		push(t, e, "pq.jobs.push", nil, "c")
		got(t, alive, "c")
		push(t, e, "pq.jobs.push", nil, "d")
		ack = leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "d")
		acked(t, e, ack, "-NAK") // its last delivery
		died(t, got(t, dead, "d"), "max_deliver")
		consistent(t, e)
	})
}

// An item that is given back without a delay comes to those who wait when its backoff is over, at
// once if there is none.
func TestWaitForABackoff(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		push(t, e, "pq.jobs.push", nil, "a")
		ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
		deliveries := 1
		for _, c := range []struct {
			settings, nak string
			least, most   time.Duration
		}{
			{`{"backoff":null}`, "-NAK", 0, 5 * time.Second},
			{`{"backoff":["300ms"]}`, "-NAK", 300 * time.Millisecond, 5 * time.Second},
			{`{"backoff":["300ms"]}`, `-NAK {"reason":"busy"}`, 300 * time.Millisecond, 5 * time.Second},
			{`{"backoff":["1h"]}`, `-NAK {"delay":0}`, 0, 5 * time.Second},
		} {
			if m := e.Request("pq.jobs.config", nil, []byte(c.settings)); bridge.ErrorFromHeaders(m.Header) != nil {
				t.Fatalf("%s: %v", c.settings, m.Header)
			}
			replies := asked(t, e, "jobs", "pop.min", `{"expires":"1h","ack_wait":"1h"}`)
			began := time.Now()
			acked(t, e, ack, c.nak)
			m := got(t, replies, "a")
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("%s with %s: it came back after %v", c.nak, c.settings, took)
			}
			deliveries++
			if m.Header.Get(subjects.HeaderDeliveries) != fmt.Sprint(deliveries) {
				t.Errorf("%s with %s: %v, want delivery %d", c.nak, c.settings, m.Header, deliveries)
			}
			ack = m.Reply
		}
	})
}
