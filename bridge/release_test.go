package bridge_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A lease whose reply NATS refuses ends at once, and the delivery does not count: the item does not die of it.
func TestDeniedLeases(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, restricted(inboxesOnly(), testenv.Options{Engine: engine}))
		configured(t, e, "pq.jobs", `{"max_deliver":1,"backoff":["1h"]}`, `{"backoff":["1h0m0s"],"max_deliver":1}`)
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
		acked(t, e, lease("b"), "")
		acked(t, e, lease("c"), "")
		publish(t, e, "pq.jobs.pop.min", "waits", `{"ack_wait":"1h","expires":"1h","batch":2}`)
		waiters(t, e.Bridge, "jobs", 1)
		push(t, e, "pq.jobs.push", nil, "d")
		back(5)
		waiters(t, e.Bridge, "jobs", 0)
		acked(t, e, lease("d"), "")
		consistent(t, e)
	})
}
