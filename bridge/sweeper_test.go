package bridge_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv"
)

// skewed is a clock that a test sets ahead.
type skewed struct{ ahead atomic.Int64 }

func (s *skewed) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// Each expired item is counted once, whoever finds it: a request, a list, or the sweeper of a bridge that
// has taken over the queues of another.
func TestExpiredOnTwoBridges(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		var clock skewed
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: func(o *bridge.Options) { o.Now = clock.now }})
		other := e.StartBridge()
		other.WaitReady()
		const queues, each = 20, 2
		var names []fdbpq.QueueName
		for i := range queues {
			names = append(names, fdbpq.QueueName{Name: fmt.Sprintf("jobs-%d", i)})
		}
		expire := func() {
			for i := range queues {
				for range each {
					push(t, e, fmt.Sprintf("pq.jobs-%d.push", i), nats.Header{"Nats-TTL": {"60s"}}, "x")
				}
			}
			clock.ahead.Add(int64(time.Hour))
		}
		expire()
		e.Request("pq.jobs-2.len", nil, nil)
		e.Request("pq.jobs-3.pop.min", nil, nil)
		e.Request("pq.list", nil, nil)
		expire()

		must(t, e.Bridge.Stop())
		first := float64(e.Bridge.Dispatcher().Removed().Expired) // its sweeper may have begun with the second half
		testenv.Eventually(t, func() error {
			if err := other.Dispatcher().Sweeper().Sweep(t.Context(), names); err != nil {
				return err
			}
			for i := range queues {
				if left := storedItems(t, e, fmt.Sprintf("jobs-%d", i)); left != 0 {
					return fmt.Errorf("jobs-%d has %d items", i, left)
				}
			}
			return nil
		})
		last, err := metric(other, "pq_expired_total")
		if err != nil || first+last != 2*queues*each {
			t.Errorf("%v and %v items have expired: want %d in all; %v", first, last, 2*queues*each, err)
		}
		if sweeps, err := metric(other, "pq_sweeps_total"); err != nil || sweeps == 0 {
			t.Errorf("%v sweeps, %v", sweeps, err)
		}
	})
}

// storedItems returns the number of items of a queue that are stored, whatever is due.
func storedItems(t *testing.T, e *testenv.Env, queue string) int64 {
	t.Helper()
	q, err := e.Keyspace.PriorityQueue(queue)
	must(t, err)
	n, err := kv.ReadTransact(t.Context(), e.DB, q.Len)
	must(t, err)
	return n
}
