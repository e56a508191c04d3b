package bridge_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// What a bridge has counted outlives it: the next one says so, and that nothing is missing since
// the first one started. Its metrics have only what it has done itself.
func TestCountsOutliveABridge(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		stats := func() *subjects.BridgeStats {
			reply := e.Request("$SRV.STATS.pqbridge", nil, []byte(subjects.StatsOfQueues))
			s, err := subjects.ParseBridgeStats(reply.Data)
			must(t, err)
			return s
		}

		push(t, e, "pq.jobs.push.1", nil, "a")
		push(t, e, "pq.jobs.push.1", nil, "b")
		since := stats().Since
		restart(t, e)
		push(t, e, "pq.jobs.push.1", nil, "c")

		s := stats()
		same(t, "queues", len(s.Queues), 1)
		same(t, "pushed by this bridge", s.Total.In, 1)
		same(t, "pushed in the last hour", s.Total.Hour.In, 3)
		same(t, "pushed in the last day", s.Queues[0].Day.In, 3)
		same(t, "since", s.Since, since)
		same(t, "since of the queue", s.Queues[0].Since, since)
		wantMetric(t, e.Bridge, `pq_queue_pushed_total{kind="priority",queue="jobs"}`, 1)
	})
}
