package dispatch

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Very many waiters cost little memory and nothing else, and all are served, in order.
func TestManyWaiters(t *testing.T) {
	const most = 600 // bytes; of very many, each has fewer
	waiters := harness.Times(10_000, 100_000)

	for _, queues := range []int{1, waiters / 10} {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			inBubble(t, func(o *Options) {
				o.MaxWaiters = waiters
				o.MaxPending = waiters
			}, func(w *waiting) {
				var list []*Queue
				for i := range queues {
					list = append(list,
						getQueue(t, w.d.queues, subjects.Priority, fmt.Sprint("jobs-", i)))
				}

				log := &eventLog{}
				before := heapAlloc()

				for n := range waiters {
					q := list[n%queues]
					wait := &Wait{Until: time.Now().Add(time.Hour), Heartbeat: time.Minute}

					r := Request{
						Queue:    q,
						Replier:  number(log, uint64(n)),
						Received: time.Now(),
						Wait:     wait,
					}
					must(t, w.d.Submit(&r, pops(pop(q), 1)))

					if n%500 == 0 {
						synctest.Wait()
					}
				}

				synctest.Wait()
				if each := (heapAlloc() - before) / int64(waiters); queues == 1 && each > most {
					t.Errorf("%d bytes for each waiter, want at most %d", each, most)
				}

				w.takeTransactions()
				time.Sleep(time.Minute - 1)
				w.wantTransactions(0, "while nothing happens")

				for n := range waiters {
					q := list[n%queues]
					r := Request{Queue: q, Replier: log, Received: time.Now()}
					must(t, w.d.Submit(&r, pops(push(q, "x"), 1)))
				}

				synctest.Wait()
				events := log.take()

				for n, event := range events {
					if want := fmt.Sprint(n, ": x"); queues == 1 && event != want {
						t.Fatalf("got %q, want %q", event, want)
					}
				}
				if len(events) != waiters {
					t.Errorf("%d of %d were served", len(events), waiters)
				}
			})
		})
	}
}

// heapAlloc returns the bytes of live objects.
func heapAlloc() int64 {
	runtime.GC()
	runtime.GC() // also empties the pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)

	return int64(stats.HeapAlloc)
}
