package dispatch

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// counting is a Replier that counts answers with items.
type counting struct {
	items, others sync.WaitGroup
	mu            sync.Mutex
	order         []uint64
}

func (c *counting) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	switch {
	case ops[0].Kind == fdbpq.OpPush:
		c.others.Done()
	case results[0].Err == nil:
		c.mu.Lock()
		c.order = append(c.order, numberOf(r))
		c.mu.Unlock()
		c.items.Done()
	}
}

func (c *counting) Deliver(*Request, []fdbpq.Op, []fdbpq.Result) bool { return true }
func (c *counting) Heartbeat(*Request, int)                           {}

func (c *counting) Fail(_ *Request, _ []fdbpq.Op, err error) { panic(err) }

// awaitIdle returns when no request is pending.
func awaitIdle(d *Dispatcher) {
	for pending, _ := d.Pending(); pending > 0; pending, _ = d.Pending() {
		runtime.Gosched()
	}
}

// Very many waiters cost little memory and nothing else, and all are served, in order.
func TestManyWaiters(t *testing.T) {
	most := int64(harness.RaceTimes(500, 550)) // of fewer waiters, each has more of what a batch keeps
	for queues, waiters := range map[int]int{1: harness.RaceTimes(100_000, 20_000), harness.RaceTimes(10_000, 2_000): harness.RaceTimes(10_000, 2_000)} {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			d := newTest(t)
			store := countkv.New(d.options.DB)
			d.options.DB, d.options.MaxWaiters = store, waiters
			d.lanes[0].batcher = fdbpq.NewBatcher(store, d.options.Keyspace)
			d.load.maxRequests = 1 << 20
			d.options.RequestTimeout = time.Minute // the store in memory is slow with many queues
			stop := run(t, d)
			var list []*Queue
			for i := range queues {
				list = append(list, getQueue(t, d.queues, subjects.Priority, fmt.Sprint("jobs-", i)))
			}
			c := &counting{order: make([]uint64, 0, waiters)}
			before := heapAlloc()
			began := time.Now()
			until := time.Now().Add(time.Hour)
			for n := range uint64(waiters) {
				q := list[n%uint64(queues)]
				r := Request{Queue: q, Replier: number(c, n), Received: time.Now(), Wait: &Wait{Until: until, Heartbeat: time.Minute}}
				c.items.Add(1)
				must(t, d.Submit(&r, []fdbpq.Op{pop(q)}))
				if n%1000 == 999 {
					awaitIdle(d)
				}
			}
			parked := time.Since(began)
			runtime.GC() // also empties the pools
			store.Take()
			each := (heapAlloc() - before) / int64(waiters)
			if n := len(store.Take()); n != 0 {
				t.Errorf("%d transactions while nothing happens", n)
			}
			began = time.Now()
			for n := range uint64(waiters) {
				q := list[n%uint64(queues)]
				r := Request{Queue: q, Replier: c, Received: time.Now()}
				c.others.Add(1)
				must(t, d.Submit(&r, []fdbpq.Op{push(q, "x")}))
				if n%1000 == 999 {
					awaitIdle(d)
				}
			}
			c.items.Wait()
			c.others.Wait()
			served := time.Since(began)
			stop()
			if queues > 1 {
				each = 0 // mostly what is left of an earlier test
			}
			t.Logf("%d waiters parked in %v, %d bytes each, served by as many pushes in %v", waiters, parked.Round(time.Millisecond), each, served.Round(time.Millisecond))
			if each > most {
				t.Errorf("%d bytes for each waiter, want at most %d", each, most)
			}
			for n := range c.order {
				if queues == 1 && c.order[n] != uint64(n) {
					t.Fatalf("waiter %d was served before waiter %d", c.order[n], n)
				}
			}
			if d.Waiters() != 0 {
				t.Errorf("%d waiters are left", d.Waiters())
			}
		})
	}
}
