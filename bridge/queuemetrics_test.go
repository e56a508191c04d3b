package bridge_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/testenv"
)

// /metrics counts deliveries and repeated ones, and says how many items of a queue are in each
// state and how old the oldest ready one is.
func TestMetricsOfLeases(t *testing.T) {
	clock := newSteppedClock()
	clock.step(-time.Hour)
	e := start(t, testenv.Options{Bridge: clock.options})

	for _, value := range []string{"a", "b", "c"} {
		push(t, e, "pq.jobs.push", nil, value)
		push(t, e, "q.jobs.push", nil, value)
	}

	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	e.Request(ack, nil, []byte("-NAK"))
	leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	delayed := leaseOne(t, e, "pq.jobs.pop.max", `{"ack_wait":"1h"}`, "c")
	e.Request(delayed, nil, []byte("-NAK 1h"))

	wantMetric(t, e.Bridge, "pq_deliveries_total", 3)
	wantMetric(t, e.Bridge, "pq_redeliveries_total", 1)

	for name, want := range map[string][2]float64{
		"length":  {1, 3},
		"leased":  {1, 0},
		"delayed": {1, 0},
	} {
		wantMetric(t, e.Bridge, `pq_queue_`+name+`{kind="priority",queue="jobs"}`, want[0])
		wantMetric(t, e.Bridge, `pq_queue_`+name+`{kind="fifo",queue="jobs"}`, want[1])
	}

	age, err := metric(e.Bridge, `pq_queue_oldest_seconds{kind="priority",queue="jobs"}`)
	if most := 2 * time.Hour; err != nil || age < time.Hour.Seconds() || age > most.Seconds() {
		t.Errorf("the oldest item is %v s old, %v: want an hour", age, err)
	}

	leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "b")
	wantMetric(t, e.Bridge, `pq_queue_oldest_seconds{kind="priority",queue="jobs"}`, 0)

	wantMetric(t, e.Bridge, `pq_request_items_count{operation="fifo-pop"}`, 0)
	must(t, e.Conn.PublishRequest("q.jobs.pop", e.Conn.NewRespInbox(), []byte(`{"batch":3}`)))
	wantMetric(t, e.Bridge, `pq_request_items_count{operation="fifo-pop"}`, 1)
	wantMetric(t, e.Bridge, `pq_request_items_sum{operation="fifo-pop"}`, 3)
}

// /metrics counts jobs that are done and kept, how long their last leases lasted, and what
// acknowledgements push as pushes. Series exist before there is anything to count.
func TestMetricsOfOutcomes(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	wantMetric(t, e.Bridge, `pq_queue_finished_total{kind="*",queue="*"}`, 0)
	wantMetric(t, e.Bridge, "pq_job_seconds_count", 0)

	finished := `pq_queue_finished_total{kind="priority",queue="jobs"}`
	ok(t, e, "pq.jobs.config", nil, `{"next":["mail"]}`)
	acks := pushAndLease(t, e, "jobs", 2)
	ok(t, e, acks[0], nil, "+ACK") // not kept
	wantMetric(t, e.Bridge, finished, 0)

	// When this lease began is not known: there was no reason to note it.
	ok(t, e, "pq.jobs.config", nil, `{"keep":"1h"}`)
	ok(t, e, acks[1], nil, "+ACK")
	wantMetric(t, e.Bridge, finished, 1)
	wantMetric(t, e.Bridge, "pq_job_seconds_count", 0)

	push(t, e, "pq.jobs.push", nil, "a")
	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	clock.step(2 * time.Second)
	ok(t, e, ack, nil, "+WPI") // the job goes on, and so does its time
	clock.step(time.Second)
	ok(t, e, ack, framed("+ACK", 2), frames(pushesTo("mail", 0, "", "x"),
		pushesTo("mail", 0, "", "y")))
	refused(t, e, 409, ack, framed("+ACK", 1), []byte(frames(pushesTo("mail", 0, "", "z"))))

	wantMetric(t, e.Bridge, finished, 2)
	wantMetric(t, e.Bridge, "pq_job_seconds_count", 1)
	wantMetric(t, e.Bridge, `pq_job_seconds_bucket{le="2.048"}`, 0)
	wantMetric(t, e.Bridge, `pq_job_seconds_bucket{le="4.096"}`, 1)
	wantMetric(t, e.Bridge, `pq_queue_pushed_total{kind="priority",queue="mail"}`, 2)
	wantMetric(t, e.Bridge, `pq_queue_done_total{kind="priority",queue="jobs"}`, 3)
}

// A queue shows in the metrics that it is paused, until the pause is over.
func TestMetricsOfPauses(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	wantMetric(t, e.Bridge, `pq_queue_paused{kind="priority",queue="jobs"}`, 0)

	ok(t, e, "pq.jobs.config", nil, `{"pause_until":"2999-01-01T00:00:00Z"}`)
	wantMetric(t, e.Bridge, `pq_queue_paused{kind="priority",queue="jobs"}`, 1)

	ok(t, e, "pq.jobs.config", nil, `{"pause_until":"2001-01-01T00:00:00Z"}`)
	wantMetric(t, e.Bridge, `pq_queue_paused{kind="priority",queue="jobs"}`, 0)
}

// Each of several bridges shows the queues that it owns, and no other does. One that stops leaves
// its own to the others.
func TestOwnersShowQueues(t *testing.T) {
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine})
		second := e.StartBridge()
		waitForPeers(t, e.Bridge, second)
		const queues = 20

		for i := range queues {
			push(t, e, fmt.Sprintf("pq.jobs-%d.push", i), nil, "a")
		}

		// shown returns how many times each length is shown, and how many of them by the second
		// bridge.
		shown := func() (times map[string]int, bySecond int) {
			times = map[string]int{}
			for n, b := range []*testenv.Bridge{e.Bridge, second} {
				_, body, err := b.Get("/metrics")
				must(t, err)

				for line := range strings.Lines(string(body)) {
					if strings.HasPrefix(line, "pq_queue_length{") {
						times[line]++
						bySecond += n
					}
				}
			}

			return times, bySecond
		}
		testenv.Eventually(t, func() error {
			times, bySecond := shown()
			for line, n := range times {
				if n != 1 {
					return fmt.Errorf("%d bridges show %s", n, line)
				}
			}

			if len(times) != queues || bySecond == 0 || bySecond == queues {
				return fmt.Errorf("%d queues are shown, %d of them by the second bridge",
					len(times), bySecond)
			}

			return nil
		})

		e.Bridge.MustStop()
		for i := range queues {
			length := fmt.Sprintf(`pq_queue_length{kind="priority",queue="jobs-%d"}`, i)
			wantMetric(t, second, length, 1)
		}
	})
}

// Scrapes at the same time, or soon after a slow one, read the lengths once: each kind in two round
// trips to the store, one for the names and one for the lengths.
func TestScrapesShareFigures(t *testing.T) {
	const queues = 20
	begun, free := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	begin := sync.OnceFunc(func() { close(begun) })

	slow := hooked{read: func(ctx context.Context) error {
		if held.Load() {
			if bytes.Contains(debug.Stack(), []byte("queueCollector")) { // the sweeper reads, too
				begin()
			}
			<-free
		}
		return nil
	}}

	var store *countkv.DB
	e := start(t, testenv.Options{
		Wrap: func(db kv.Database) kv.Database {
			store = countkv.New(db)
			return slow.wrap(store)
		},
		Bridge: func(o *bridge.Options) { o.HTTPTimeout = testenv.Patience },
	})

	for i := range queues {
		push(t, e, fmt.Sprintf("pq.jobs-%d.push", i), nil, "a")
		push(t, e, fmt.Sprintf("q.jobs-%d.push", i), nil, "a")
	}

	store.Take()
	held.Store(true)

	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			err := metricIs(e.Bridge, `pq_queue_length{kind="fifo",queue="jobs-7"}`, 1)
			if err != nil {
				t.Error(err)
			}
		})
	}

	<-begun
	// It is shown for ten times as long.
	time.AfterFunc(500*time.Millisecond, func() { close(free) })
	wg.Wait()
	want, reads := countkv.Cost{Reads: 1 + queues, Rounds: 2}, 0
	costs := store.Take()

	for _, cost := range costs {
		if cost == want {
			reads++
		}
	}
	if reads != 2 { // one of each kind
		t.Errorf("the costs are %+v, %d of them %+v", costs, reads, want)
	}
}
