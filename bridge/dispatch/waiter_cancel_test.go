package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// One that is cancelled while it is in a batch ends with that batch. What it got is delivered,
// so its Replier can say once more that nobody received it.
func TestCancelInABatch(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.log.told = func(r *Request) { w.d.Cancel(r.Waiting()) }
		w.park(w.pops(fdbpq.Front, 3)...) // 1
		w.park(pop(w.q))                  // 2
		w.push("a")
		w.want("both calls", "1: part a", "1: failed 1, unavailable")
		w.push("b")
		w.want("the next", "2: b")
		w.push("c")
		w.submit(w.minute(), w.pops(fdbpq.Front, 2)...)
		w.want("it was never parked", "6: part c", "6: failed 1, unavailable")
		w.submit(nil, push(w.q, "d"), push(w.q, "e"))
		w.submit(w.minute(), w.pops(fdbpq.Front, 2)...)
		w.want("it has all that it wants", "8: d e")
	})
}

// A request that only gets heartbeats can be cancelled too.
func TestCancelByHeartbeat(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.log.told = func(r *Request) { w.d.Cancel(r.Waiting()) }
		wait := w.minute()
		wait.Heartbeat = 10 * time.Second
		w.submit(wait, pops(fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Minute}, 1)...)
		synctest.Wait()
		time.Sleep(time.Minute)
		w.want("one heartbeat", "1: heartbeat 1", "1: failed 1, unavailable")
	})
}

// The store fails while a request has its last look, so it ends. Somebody who was told of it before
// finds out only then that nobody is there to receive more, and cancels it.
func TestCancelAfterAFailure(t *testing.T) {
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		var told Waiting
		w.log.told = func(r *Request) { told = r.Waiting() }
		w.park(pop(w.q)) // 1
		w.submit(&Wait{Until: time.Now().Add(15 * time.Second), Heartbeat: 10 * time.Second}, pop(w.q))
		time.Sleep(14 * time.Second)
		w.want("a heartbeat", "2: heartbeat 1")
		faults.SetOutage(true)
		time.Sleep(5 * time.Second)
		w.want("an outage", "2: failed 1, unavailable")
		w.d.Cancel(told)
		w.want("it has ended")
		faults.SetOutage(false)
		w.push("a")
		w.want("the other waits on", "1: a")
	})
}

// A copy of a submitted request will do, also before it has its place in the line: it takes nothing then.
func TestCancelSubmitted(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		wait := w.minute()
		w.submit(wait, pop(w.q)) // 1
		w.d.Cancel(Waiting{w.q, wait})
		w.want("it never waited, or no longer", "1: failed 1, unavailable")
		if n := w.d.Waiters(); n != 0 {
			t.Errorf("%d waiters", n)
		}
		w.d.Cancel(Waiting{w.q, wait})

		early := w.minute()
		early.cancelled = true
		w.submit(nil, push(w.q, "a"))
		w.submit(early, pop(w.q))
		w.want("it was cancelled before its turn", "3: failed 1, unavailable")
		w.submit(nil, pop(w.q))
		w.want("it took nothing", "4: a")
	})
}
