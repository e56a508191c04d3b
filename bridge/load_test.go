package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// flood sends n requests at once and counts the replies by code, 0 for success. Each
// request must get exactly one.
func flood(t *testing.T, e *testenv.Env, n int, subject, payload string) map[int]int {
	t.Helper()
	inbox := nats.NewInbox()
	replies, err := e.Conn.SubscribeSync(inbox + ".*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = replies.Unsubscribe() }()
	if err := replies.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		publish(t, e, subject, inbox+"."+strconv.Itoa(i), payload)
	}
	codes := map[int]int{}
	answered := map[string]bool{}
	for range n {
		m := next(t, replies)
		if answered[m.Subject] {
			t.Fatalf("two replies to %s", m.Subject)
		}
		answered[m.Subject] = true
		code := 0
		if err := bridge.ErrorFromHeaders(m.Header); err != nil {
			code = err.(*bridge.Error).Code
		}
		codes[code]++
	}
	return codes
}

func TestFlood(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const n = 10_000
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
		wantMetric(t, e.Bridge, "pq_pending_requests", 0)
		wantMetric(t, e.Bridge, "pq_pending_bytes", 0)
		wantMetric(t, e.Bridge, "pq_dropped_total", 0)
		e.Bridge.WaitReady()
		push(t, e, "pq.jobs.push", nil, "still here")
		discover(t, e, "$SRV.PING", &struct{}{})
	}, func(o *bridge.Options) { o.MaxPending = 1000 })
}

// Requests above the limits are refused at once, while the others wait.
func TestOverload(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		e, s := stick(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxPending = 5 }})
		overload(t, e, s, "x")
	})
	t.Run("bytes", func(t *testing.T) {
		// The request that crosses the limit is still accepted.
		e, s := stick(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxPendingBytes = 4_500 }})
		overload(t, e, s, strings.Repeat("x", 1000))
	})
}

func overload(t *testing.T, e *testenv.Env, s stuck, payload string) {
	t.Helper()
	var waiting []*nats.Subscription
	for range 5 {
		waiting = append(waiting, async(t, e, "pq.jobs.push", payload))
	}
	wantMetric(t, e.Bridge, "pq_pending_requests", 5)
	for range 3 {
		refused(t, e, 429, "pq.jobs.push", nil, []byte(payload))
	}
	close(s.free)
	for _, r := range waiting {
		if err := bridge.ErrorFromHeaders(next(t, r).Header); err != nil {
			t.Error(err)
		}
	}
	wantLen(t, e, "pq", "jobs", 5)
	wantMetric(t, e.Bridge, `pq_errors_total{code="429",operation="push"}`, 3)
}

// Many concurrent pops of large items are spread over batches of limited size.
func TestPopsOfLargeItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const size = 1 << 20
		n := race.Times(60, 30)
		payload := strings.Repeat("x", size)
		for range n {
			push(t, e, "pq.big.push", nil, payload)
		}
		e.Bridge.BeginStop() // the next one does not know the size of the items
		<-e.Bridge.Done()
		e.Bridge = e.StartBridge()
		e.Bridge.WaitReady()
		if popped := flood(t, e, 2*n, "pq.big.pop.min", ""); popped[0] != n || popped[404] != n {
			t.Errorf("pops: %v", popped)
		}
	}, func(o *bridge.Options) { o.RequestTimeout = testenv.Patience })
}

// Two bridges on one store deliver every item once.
func TestTwoBridges(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	e.StartBridge().WaitReady()
	const n, clients = 2000, 8
	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	for c := range clients {
		nc := e.Connect()
		all.Go(func() {
			for i := range n / clients {
				value := fmt.Sprintf("%d-%d", c, i)
				request(t, nc, "pq.jobs.push."+strconv.Itoa(i%3), value)
			}
			for range n / clients {
				value := request(t, nc, "pq.jobs.pop.min", "")
				mu.Lock()
				seen[value]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(seen) != n {
		t.Errorf("%d different items of %d came back", len(seen), n)
	}
	wantLen(t, e, "pq", "jobs", 0)
}

// request makes a request from any goroutine.
func request(t *testing.T, nc *nats.Conn, subject, payload string) string {
	reply, err := nc.Request(subject, []byte(payload), testenv.Patience)
	if err == nil {
		err = bridge.ErrorFromHeaders(reply.Header)
	}
	if err != nil {
		t.Errorf("%s: %v", subject, err)
		return ""
	}
	return string(reply.Data)
}

// A batch of unknown outcome is answered as such, and the items that it popped return
// to their old places.
func TestCommitUnknown(t *testing.T) {
	for _, fault := range []faultkv.Fault{faultkv.UnknownMade, faultkv.UnknownLost} {
		t.Run(fault.String(), func(t *testing.T) {
			e, faults, gate := newUnsureEnv(t)
			first := push(t, e, "pq.jobs.push", nil, "first")
			push(t, e, "pq.jobs.push", nil, "second")

			// The commit gets no answer, and the store cannot be asked for a while.
			gate.arm()
			faults.Next(fault)
			err := refused(t, e, 503, "pq.jobs.pop.min", nil, nil)
			if !err.Unknown {
				t.Errorf("%v: not unknown", err)
			}
			gate.disarm()
			// No further request is needed for the item to come back.
			wantQueued(t, e, 2)
			wantSettled(t, e)
			wantItem(t, e, "pq.jobs.pop.min", "first", first)
		})
	}
}

// wantSettled waits for the bridge to settle what is unknown: until it has, it refuses requests.
func wantSettled(t *testing.T, e *testenv.Env) {
	t.Helper()
	testenv.Eventually(t, func() error {
		err := bridge.ErrorFromHeaders(e.Request("pq.jobs.peek.min", nil, nil).Header)
		if errors.Is(err, fdbpq.ErrEmpty) {
			return nil
		}
		return err
	})
}

// newUnsureEnv starts a bridge on a store whose commits can have an unknown
// outcome, and which can be away after that.
func newUnsureEnv(t *testing.T) (e *testenv.Env, faults *faultkv.DB, gate *outageAfterUnknown) {
	gate = &outageAfterUnknown{}
	e = testenv.New(t, testenv.Options{
		Wrap: func(db kv.Database) kv.Database {
			faults = faultkv.New(db, faultkv.Options{})
			gate.Database = faults
			return gate
		},
	})
	return e, faults, gate
}

// outageAfterUnknown is a store that, once armed, lets one transaction begin and then
// none.
type outageAfterUnknown struct {
	kv.Database
	mu    sync.Mutex
	armed bool
	begun int
}

func (o *outageAfterUnknown) arm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed, o.begun = true, 0
}

func (o *outageAfterUnknown) disarm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = false
}

func (o *outageAfterUnknown) Begin(ctx context.Context, options kv.BeginOptions) (kv.Transaction, error) {
	o.mu.Lock()
	out := o.armed && o.begun > 0
	o.begun++
	o.mu.Unlock()
	if out {
		return nil, kv.ErrUnavailable
	}
	return o.Database.Begin(ctx, options)
}

func wantQueued(t *testing.T, e *testenv.Env, n int64) {
	t.Helper()
	q, err := e.Keyspace.PriorityQueue("jobs")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		got, err := kv.ReadTransact(t.Context(), e.DB, q.Len)
		if err == nil && got != n {
			err = fmt.Errorf("%d items are queued, want %d", got, n)
		}
		return err
	})
}

// Power cuts under load: acknowledged items are there, once, and in order; any other
// item is there once or not at all.
func TestPowerCut(t *testing.T) {
	disk := crashfs.New()
	race.FillDisk(disk, pebblekv.DefaultMinFreeSpace)
	db, err := pebblekv.Open("store", pebblekv.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	e := testenv.New(t, testenv.Options{Engine: testenv.Opened(db)})
	const n = 2000
	acked := make(chan string, n)
	var pushers sync.WaitGroup
	for c := range 8 {
		pushers.Go(func() {
			for i := range n / 8 {
				value := fmt.Sprintf("%d-%d", c, i)
				request(t, e.Conn, "pq.jobs.push."+strconv.Itoa(i%7), value)
				acked <- value
			}
		})
	}
	var before []string
	for len(before) < n/2 {
		before = append(before, <-acked)
	}
	after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
	pushers.Wait()

	race.FillDisk(after, pebblekv.DefaultMinFreeSpace)
	again, err := pebblekv.Open("store", pebblekv.Options{FS: after})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	e = testenv.New(t, testenv.Options{Engine: testenv.Opened(again)})
	there := map[string]int{}
	last := int64(-1)
	for {
		reply := e.Request("pq.jobs.pop.min", nil, nil)
		if err := bridge.ErrorFromHeaders(reply.Header); err != nil {
			isError(t, 404, "pop.min", reply)
			break
		}
		p, err := subjects.ParsePriority(reply.Header.Get(subjects.HeaderPriority))
		if err != nil || p < last {
			t.Errorf("priority %d after %d: %v", p, last, err)
		}
		last = p
		there[string(reply.Data)]++
	}
	for _, value := range before {
		if there[value] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", value, there[value])
		}
	}
	for value, times := range there {
		if times != 1 {
			t.Errorf("%s is there %d times", value, times)
		}
	}
}

func TestMetrics(t *testing.T) {
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MetricQueues = 2 }})
	for _, endpoint := range e.Grammar.Endpoints() {
		wantMetric(t, e.Bridge, fmt.Sprintf("pq_requests_total{operation=%q}", endpoint.Name), 0)
		wantMetric(t, e.Bridge, fmt.Sprintf(`pq_errors_total{code="503",operation=%q}`, endpoint.Name), 0)
		wantMetric(t, e.Bridge, fmt.Sprintf("pq_request_seconds_count{operation=%q}", endpoint.Name), 0)
	}
	for _, queue := range []string{"a", "b", "c"} {
		push(t, e, "pq."+queue+".push", nil, "x")
	}
	push(t, e, "q.a.enqueue", nil, "x")
	wantMetric(t, e.Bridge, `pq_requests_total{operation="push"}`, 3)
	wantMetric(t, e.Bridge, `pq_request_seconds_count{operation="enqueue"}`, 1)
	wantMetric(t, e.Bridge, `pq_queue_length{kind="priority",queue="a"}`, 1)
	wantMetric(t, e.Bridge, `pq_queue_length{kind="fifo",queue="a"}`, 1)
	wantMetric(t, e.Bridge, `pq_queue_length_truncated{kind="priority"}`, 1)
	wantMetric(t, e.Bridge, `pq_queue_length_truncated{kind="fifo"}`, 0)
	wantMetric(t, e.Bridge, "pq_queue_length_up", 1)
	wantMetric(t, e.Bridge, "pq_batch_requests_count", 4)
	_, body, err := e.Bridge.Get("/metrics")
	if err != nil || bytes.Contains(body, []byte(`queue="c"`)) || !bytes.Contains(body, []byte("process_cpu_seconds_total")) {
		t.Errorf("%v\n%s", err, body)
	}
}

// /metrics shows the longest queues: queues that were emptied, or whose names sort
// first, do not displace others.
func TestMetricsShowTheLongestQueues(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for i, queue := range []string{"a", "b", "c", "d", "e"} {
			for range 1 + i%4 { // 1, 2, 3, 4, 1
				push(t, e, "pq."+queue+".push", nil, "x")
				push(t, e, "q."+queue+".enqueue", nil, "x")
			}
		}
		for range 2 {
			e.Request("pq.b.pop.min", nil, nil)
			e.Request("q.b.dequeue", nil, nil)
		}
		_, body, err := e.Bridge.Get("/metrics")
		if err != nil || bytes.Count(body, []byte("pq_queue_length{")) != 4 {
			t.Errorf("%v\n%s", err, body)
		}
		for _, kind := range []string{"priority", "fifo"} {
			wantMetric(t, e.Bridge, fmt.Sprintf(`pq_queue_length{kind=%q,queue="d"}`, kind), 4)
			wantMetric(t, e.Bridge, fmt.Sprintf(`pq_queue_length{kind=%q,queue="c"}`, kind), 3)
			wantMetric(t, e.Bridge, fmt.Sprintf(`pq_queue_length_truncated{kind=%q}`, kind), 1)
		}
	}, func(o *bridge.Options) { o.MetricQueues = 2 })
}
