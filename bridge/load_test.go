package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// flood sends n requests at once, and counts the answers by code, once there is room for more.
func flood(t *testing.T, e *testenv.Env, n int, subject, payload string) map[int]int {
	t.Helper()
	defer wantMetric(t, e.Bridge, "pq_pending_requests", 0)
	return countAnswers(t, askMany(t, e, n, subject, payload), n)
}

// Each request of a flood gets one reply, and pops of many items each are no exception.
func TestFlood(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const n = 2000
		pushed := flood(t, e, n, "pq.jobs.push", "x")
		if pushed[0]+pushed[429] != n || pushed[0] == 0 {
			t.Errorf("pushes: %v", pushed)
		}
		wantLen(t, e, "pq", "jobs", pushed[0])

		popped := flood(t, e, n, "pq.jobs.pop.max", "")
		if popped[0]+popped[404]+popped[429] != n || popped[0] == 0 {
			t.Errorf("pops: %v", popped)
		}
		wantLen(t, e, "pq", "jobs", pushed[0]-popped[0])

		many := flood(t, e, n, "pq.empty.pop.min", `{"batch":1000}`)
		if many[404]+many[429] != n || many[404] == 0 {
			t.Errorf("pops of many items: %v", many)
		}
		wantMetric(t, e.Bridge, "pq_pending_bytes", 0)
		wantMetric(t, e.Bridge, "pq_dropped_total", 0)

		e.Bridge.WaitReady()
	}, func(o *bridge.Options) { o.MaxPending = 500 })
}

// Requests above the limits are refused at once, while the others wait.
func TestOverload(t *testing.T) {
	t.Parallel()

	t.Run("requests", func(t *testing.T) {
		e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxPending = 5 }})
		overload(t, e, s, "x")
	})

	t.Run("bytes", func(t *testing.T) {
		// The request that crosses the limit is still accepted.
		e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) {
			o.MaxPendingBytes = 4_500
		}})
		overload(t, e, s, strings.Repeat("x", 1000))
	})
}

// overload sends more requests with this payload than may wait.
func overload(t *testing.T, e *testenv.Env, s stuck, payload string) {
	t.Helper()
	var waiting []*nats.Subscription
	for range 5 {
		waiting = append(waiting, ask(t, e.Conn, "pq.jobs.push", payload))
	}
	wantMetric(t, e.Bridge, "pq_pending_requests", 5)

	for range 3 {
		refused(t, e, 429, "pq.jobs.push", nil, []byte(payload))
	}

	close(s.free)
	for _, r := range waiting {
		must(t, replyError(next(t, r).Header))
	}
	wantMetric(t, e.Bridge, "pq_pending_requests", 0) // they count a little longer
	wantLen(t, e, "pq", "jobs", 5)
	wantMetric(t, e.Bridge, `pq_errors_total{code="429",operation="push"}`, 3)
}

// Many concurrent pops of large items are spread over batches of limited size.
func TestPopsOfLargeItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const n = 12 // more than a transaction has room for
		for range n {
			push(t, e, "pq.big.push", nil, strings.Repeat("x", 1<<20))
		}

		restart(t, e) // the next one does not know the size of the items
		if popped := flood(t, e, 2*n, "pq.big.pop.min", ""); popped[0] != n || popped[404] != n {
			t.Errorf("pops: %v", popped)
		}
	})
}

// request makes a request from any goroutine.
func request(t *testing.T, nc *nats.Conn, subject, payload string) string {
	reply, err := nc.Request(subject, []byte(payload), testenv.Patience)
	if err == nil {
		err = replyError(reply.Header)
	}
	if err != nil {
		t.Errorf("%s: %v", subject, err)
		return ""
	}

	return string(reply.Data)
}

// A request of unknown outcome is answered as such. What it popped returns to its old place,
// without a further request, and a batch of pushes or acknowledgements is done as a whole or not at
// all.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, fault := range []faultkv.Fault{faultkv.UnknownMade, faultkv.UnknownLost} {
		made := fault == faultkv.UnknownMade
		t.Run(fault.String(), func(t *testing.T) {
			const many = 1 << 60
			var faults *faultkv.DB
			var left, commits atomic.Int64 // how many transactions may begin, and were committed
			left.Store(many)

			gate := hooked{
				commit: func() { commits.Add(1) },
				begin: func(context.Context) error {
					if left.Add(-1) < 0 {
						return kv.ErrUnavailable
					}
					return nil
				},
			}

			e := testenv.New(t, testenv.Options{Wrap: func(db kv.Database) kv.Database {
				faults = faultkv.New(db, faultkv.Options{})
				return gate.wrap(faults)
			}})

			unsure := func(subject, payload string) {
				t.Helper()
				// The commit gets no answer, and the store cannot be asked for a while.
				left.Store(1)
				faults.Next(fault)
				if err := refused(t, e, 503, subject, nil, []byte(payload)); !err.Unknown {
					t.Errorf("%v: not unknown", err)
				}

				left.Store(many)
			}

			// It must not get a fault.
			waitUntil(t, "the sweep of old receipts", func() bool { return commits.Load() >= 2 })

			first := push(t, e, "pq.jobs.push", nil, "first")
			push(t, e, "pq.jobs.push", nil, "second")
			unsure("pq.jobs.pop.min", "")

			wantQueued(t, e, 2)
			wantSettled(t, e, "jobs")
			wantItem(t, e, "pq.jobs.pop.min", "first", first)

			unsure("pq.jobs.push.batch",
				frames(frame(1, "", "a"), frame(2, "", "b"), frame(3, "", "c")))
			queued := int64(1)
			if made {
				queued += 3
			}
			wantQueued(t, e, queued)
			wantSettled(t, e, "jobs")

			acks := pushAndLease(t, e, "more", 3)
			unsure(acks[0], alsoPayload("+ACK", acks[1:]))
			wantSettled(t, e, "more")

			m := e.Request(acks[0], nil, []byte(alsoPayload("+ACK", acks[1:])))
			lost := ""
			if made {
				lost = "0,1,2"
			}
			same(t, "lost leases", m.Header.Get(subjects.HeaderLost), lost)
			checkStore(t, e)
		})
	}
}

// wantSettled waits for the lane of a queue to settle its last batch: until it has, it refuses
// requests. Other lanes answer meanwhile.
func wantSettled(t *testing.T, e *testenv.Env, queue string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		err := replyError(e.Request("pq."+queue+".peek.min", nil, nil).Header)
		if errors.Is(err, fdbpq.ErrEmpty) {
			return nil
		}

		return err
	})
}

// wantQueued waits until the queue "jobs" has n items in the store.
func wantQueued(t *testing.T, e *testenv.Env, n int64) {
	t.Helper()
	q := jobsOf(t, e)
	testenv.Eventually(t, func() error {
		got, err := kv.ReadTransact(t.Context(), e.DB, q.Len)
		if err == nil && got != n {
			err = fmt.Errorf("%d items are queued, want %d", got, n)
		}

		return err
	})
}

// /metrics has all series from the start, counts repeated attempts at batches, and shows the
// longest queues, whatever their names.
func TestMetrics(t *testing.T) {
	var faults *faultkv.DB
	var commits atomic.Int64
	counts := hooked{commit: func() { commits.Add(1) }}

	e := start(t, testenv.Options{
		Bridge: func(o *bridge.Options) { o.MetricQueues = 2 },
		Wrap: func(db kv.Database) kv.Database {
			faults = faultkv.New(db, faultkv.Options{})
			return counts.wrap(faults)
		},
	})
	// It must not get a fault.
	waitUntil(t, "the sweep of old receipts", func() bool { return commits.Load() >= 2 })

	_, first, err := e.Bridge.Get("/metrics")
	must(t, err)

	for _, endpoint := range e.Grammar.Endpoints() {
		for _, series := range []string{
			`requests_total{operation=%q} 0`, `errors_total{code="503",operation=%q} 0`,
			`request_seconds_count{operation=%q} 0`,
		} {
			line := fmt.Sprintf("\npq_"+series+"\n", endpoint.Name)
			if !bytes.Contains(first, []byte(line)) {
				t.Errorf("%q is missing", line)
			}
		}
	}

	for _, queue := range []string{"a", "b", "c", "c"} {
		push(t, e, "pq."+queue+".push", nil, "x")
	}

	push(t, e, "q.a.push", nil, "x")
	for series, want := range map[string]float64{
		`pq_requests_total{operation="push"}`:             4,
		`pq_request_seconds_count{operation="fifo-push"}`: 1,
		`pq_queue_length{kind="priority",queue="c"}`:      2,
		`pq_queue_length{kind="priority",queue="a"}`:      1,
		`pq_queue_length{kind="fifo",queue="a"}`:          1,
		`pq_queue_length_truncated{kind="priority"}`:      1,
		// The first queues that are used have counters of their own.
		`pq_queue_pushed_total{kind="priority",queue="a"}`: 1,
		`pq_queue_pushed_total{kind="priority",queue="b"}`: 1,
		`pq_queue_failed_total{kind="priority",queue="b"}`: 0,
		`pq_queue_pushed_total{kind="*",queue="*"}`:        3,
		`pq_build_info{engine="",version="0.0.1"}`:         1,
		`pq_queue_length_truncated{kind="fifo"}`:           0,
		"pq_queue_length_up":                               1,
		"pq_batch_requests_count":                          5,
		"pq_conflicts_total":                               0,
	} {
		wantMetric(t, e.Bridge, series, want)
	}

	_, body, err := e.Bridge.Get("/metrics")
	if err != nil || bytes.Contains(body, []byte(`pq_queue_length{kind="priority",queue="b"}`)) ||
		bytes.Contains(body, []byte("jetstream")) || bytes.Contains(body, []byte("pq_store_")) ||
		!bytes.Contains(body, []byte("process_cpu_seconds_total")) {
		t.Errorf("%v\n%s", err, harness.Shorten("metrics", string(body)))
	}

	// Which fails for another reason.
	faults.Next(faultkv.Conflict, faultkv.Conflict, faultkv.TooOld)
	e.Request("pq.jobs.push", nil, nil)
	wantMetric(t, e.Bridge, "pq_conflicts_total", 2)
}
