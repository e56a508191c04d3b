package bridge_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leave ends a subscription, once the server knows.
func leave(t *testing.T, e *testenv.Env, s *nats.Subscription) {
	t.Helper()
	must(t, errors.Join(s.Unsubscribe(), e.Conn.FlushTimeout(testenv.Patience)))
}

// An item that a waiting pop does not receive goes to the next in line at once, as it was, and the
// delivery does not count.
func TestGoneWaiterMakesRoomForTheNext(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		back := 0
		// The first asks for one item, or for more than there will be.
		for _, options := range []string{
			`{"expires":"1h"}`, `{"expires":"1h","batch":5}`,
			`{"expires":"1h","batch":5,"no_wait":true}`,
		} {
			gone := askAndWait(t, e, "jobs", "pop.min", options)
			plain := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
			lease := askAndWait(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1h"}`)
			leave(t, e, gone)

			pushed := push(t, e, "pq.jobs.push.3", nil, "a")
			m := wantNext(t, plain, "a")
			if m.Header.Get(subjects.HeaderID) != pushed.ID ||
				m.Header.Get(subjects.HeaderPriority) != "3" {
				t.Errorf("%s: got %v, pushed %v", options, m.Header, pushed)
			}

			back++
			pushed = push(t, e, "pq.jobs.push", nil, "b")

			m = wantNext(t, lease, "b")
			if m.Header.Get(subjects.HeaderID) != pushed.ID ||
				m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("%s: leased %v, pushed %v", options, m.Header, pushed)
			}

			acknowledge(t, e, m.Reply, "")
			wantMetric(t, e.Bridge, "pq_waiters", 0)
			wantMetric(t, e.Bridge, noResponders, float64(back)) // once each
		}
		wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
		checkStore(t, e)
	})
}

// A heartbeat that nobody hears ends the pop that waits, with or without a lease.
func TestGoneWaiterMissesItsHeartbeat(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, options := range []string{
		`{"expires":"1h","idle_heartbeat":"100ms"}`,
		`{"expires":"1h","idle_heartbeat":"100ms","ack_wait":"1h"}`,
		`{"expires":"1h","idle_heartbeat":"100ms","ack_wait":"1h","batch":3}`,
	} {
		there := askAndWait(t, e, "jobs", "pop.max", options)
		gone := askAndWait(t, e, "jobs", "pop.max", options)
		leave(t, e, gone)
		waitForWaiters(t, e.Bridge, "jobs", 1)

		for range 3 { // the other one goes on
			if m := next(t, there); !subjects.IsHeartbeat(m.Header) {
				t.Fatalf("%s: got %q %v, want a heartbeat", options, m.Data, m.Header)
			}
		}

		waitForWaiters(t, e.Bridge, "jobs", 1)
		leave(t, e, there)
		waitForWaiters(t, e.Bridge, "jobs", 0)
	}
	wantMetric(t, e.Bridge, "pq_waiters", 0)
	wantMetric(t, e.Bridge, noResponders, 0) // there were no items
	wantMetric(t, e.Bridge, "pq_unanswered_total", 0)
}

// A lease whose reply NATS refuses ends at once, and the delivery does not count, so the item does
// not become a dead letter.
func TestDeniedLeases(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, restricted(inboxesOnly(), testenv.Options{Engine: engine}))
		configure(t, e, "pq.jobs", `{"max_deliver":1,"backoff":["1h"]}`,
			`{"backoff":["1h0m0s"],"max_deliver":1}`)

		lease := func(value string) (ack string) {
			t.Helper()
			m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
			if string(m.Data) != value || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Fatalf("leased %q, %v: want %s, for the first time", m.Data, m.Header, value)
			}

			return m.Reply
		}

		pushAll(t, e, "pq.jobs.push", "a", "b", "c")
		back := func(n float64) {
			t.Helper()
			wantMetric(t, e.Bridge, `pq_given_back_total{reason="denied"}`, n)
		}

		publish(t, e, "pq.jobs.pop.min", "one", `{"ack_wait":"1h"}`)
		back(1)
		publish(t, e, "pq.jobs.pop.max", "several", `{"ack_wait":"1h","batch":2}`)
		back(3)
		ack := lease("a")
		publish(t, e, ack, "next", "+NXT")
		back(4)
		acknowledge(t, e, lease("b"), "")
		acknowledge(t, e, lease("c"), "")
		publish(t, e, "pq.jobs.pop.min", "waits", `{"ack_wait":"1h","expires":"1h","batch":2}`)
		waitForWaiters(t, e.Bridge, "jobs", 1)
		push(t, e, "pq.jobs.push", nil, "d")
		back(5)
		waitForWaiters(t, e.Bridge, "jobs", 0)
		acknowledge(t, e, lease("d"), "")

		checkStore(t, e)
	})
}

// While large items are popped again and again for clients that are gone, another queue of the lane
// is served. No item is lost.
func TestFloodOfPopsForNobody(t *testing.T) {
	const items, pops = 12, 40
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) {
		// So that few of the items are on their way at a time.
		o.Lanes, o.MaxPendingBytes, o.MaxBatchBytes = 1, 8<<20, 1<<20
	}})

	for i := range items {
		push(t, e, fmt.Sprintf("pq.large.push.%d", i), nil, string(make([]byte, 1_000_000)))
	}

	flood := e.Connect()
	for range pops {
		must(t, flood.PublishRequest("pq.large.pop.min", nats.NewInbox(), nil))
	}
	must(t, flood.FlushTimeout(testenv.Patience))

	stop := bystand(t, e)
	wantMetric(t, e.Bridge, noResponders, pops)

	stop()
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
	wantLen(t, e, "pq", "large", items)
}
