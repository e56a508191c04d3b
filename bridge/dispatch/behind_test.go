package dispatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// firstResults is a Replier that passes on the first result of each request.
type firstResults struct {
	t       *testing.T
	results chan numbered
}

type numbered struct {
	number uint64
	fdbpq.Result
}

func (f *firstResults) Answer(r *Request, _ []fdbpq.Op, results []fdbpq.Result) {
	f.results <- numbered{r.Number, results[0]}
}

func (f *firstResults) Deliver(*Request, []fdbpq.Op, []fdbpq.Result) bool { return true }
func (f *firstResults) Heartbeat(*Request, int)                           {}

func (f *firstResults) Fail(r *Request, _ []fdbpq.Op, err error) {
	f.results <- numbered{r.Number, fdbpq.Result{Err: err}}
}

// next returns the next result.
func (f *firstResults) next() numbered {
	f.t.Helper()
	select {
	case r := <-f.results:
		return r
	case <-time.After(time.Minute):
		f.t.Fatal("no answer within a minute")
		return numbered{}
	}
}

// runTest runs a dispatcher until the test ends.
func runTest(t *testing.T, d *Dispatcher) {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { d.Run(ctx) })
	t.Cleanup(func() {
		d.Close()
		running.Wait()
		cancel()
	})
}

const largeItem = 90_000

// fill pushes n large items, the last of them with the smallest priority.
func fill(t *testing.T, d *Dispatcher, q *Queue, n int) {
	t.Helper()
	b := fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)
	for i := range n {
		op := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q.Target, Priority: int64(n - 1 - i), Message: fdbpq.Message{Value: make([]byte, largeItem)}}
		if _, err := b.Apply(t.Context(), []fdbpq.Op{op}); err != nil {
			t.Fatal(err)
		}
	}
}

func submit(t *testing.T, d *Dispatcher, q *Queue, f *firstResults, number uint64, op fdbpq.Op) {
	t.Helper()
	op.Queue = q.Target
	if err := d.Submit(&Request{Queue: q, Replier: f, Number: number, Reply: "reply", Received: time.Now(), Size: 10}, []fdbpq.Op{op}); err != nil {
		t.Fatal(err)
	}
}

// While very many items of one queue come back, other queues of the lane are served, and pops of the queue itself, in
// order. Once they are back, they are counted.
func TestPopsAreServedWhileOneQueueIsBehind(t *testing.T) {
	const n = 60
	d := newTest(t)
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	d.lanes[0].batcher.SetNow(now)
	d.lanes[0].batcher.LimitCatchUp(time.Nanosecond)
	large, other := getQueue(t, d.queues, subjects.Priority, "large"), getQueue(t, d.queues, subjects.Priority, "other")
	fill(t, d, large, n)
	fill(t, d, other, 1)
	b := fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)
	for range n {
		if _, err := b.Apply(t.Context(), []fdbpq.Op{{Kind: fdbpq.OpLease, Queue: large.Target, Lease: time.Minute}}); err != nil {
			t.Fatal(err)
		}
	}
	ahead.Store(int64(time.Hour))
	f := &firstResults{t, make(chan numbered, 4)}
	submit(t, d, large, f, 1, fdbpq.Op{Kind: fdbpq.OpPop})
	submit(t, d, large, f, 2, fdbpq.Op{Kind: fdbpq.OpLen})
	submit(t, d, other, f, 3, fdbpq.Op{Kind: fdbpq.OpPop})
	runTest(t, d)
	var got []string
	for range 3 {
		r := f.next()
		got = append(got, fmt.Sprint(r.number, " ", r.Item.ID.Priority, " ", r.Len, " ", r.Err))
	}
	if want := fmt.Sprint([]string{"1 0 0 <nil>", "3 0 0 <nil>", fmt.Sprint("2 0 ", n-1, " <nil>")}); fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
