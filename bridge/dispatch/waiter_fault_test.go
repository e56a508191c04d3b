package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// A request that is cancelled while it is in a batch ends with the batch. What it got is delivered,
// so its Replier can say once more that nobody received it.
func TestCancelInABatch(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.log.told = func(r *Request) { w.d.Cancel(r.WaitHandle()) }
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

		wait := w.minute() // for heartbeats alone
		wait.Heartbeat = 10 * time.Second
		w.submit(wait, pop(w.q))
		time.Sleep(time.Minute)

		w.want("one heartbeat", "9: heartbeat 1", "9: failed 1, unavailable")
	})
}

// A copy of a submitted request cancels it, even before it has its place in the line: it takes
// nothing then.
func TestCancelSubmitted(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		wait := w.minute()
		w.submit(wait, pop(w.q)) // 1
		w.d.Cancel(WaitHandle{w.q, wait})

		w.want("it never waited, or no longer", "1: failed 1, unavailable")

		early := w.minute()
		early.cancelled = true
		w.submit(nil, push(w.q, "a"))
		w.submit(early, pop(w.q))

		w.want("it was cancelled before its turn", "3: failed 1, unavailable")

		w.submit(nil, pop(w.q))
		w.want("it took nothing", "4: a")
	})
}

// withFaults is inBubble with a store whose faults the test controls.
func withFaults(t *testing.T, test func(w *waiting, faults *faultkv.DB)) {
	t.Helper()
	var faults *faultkv.DB
	configure := func(o *Options) {
		faults = faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{})
		o.DB = faults
	}

	inBubble(t, configure, func(w *waiting) { test(w, faults) })
}

// While the store is away, waiters wait on. They are told the truth at the end, and served
// if the store comes back before.
func TestWaitersOutliveAnOutage(t *testing.T) {
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		w.park(pop(w.q))                                                   // 1
		w.submit(&Wait{Until: time.Now().Add(20 * time.Second)}, pop(w.q)) // 2
		w.park(pop(w.q))                                                   // 3

		w.want("at first")

		faults.SetOutage(true)
		w.submit(nil, push(w.q, "a"))
		w.submit(nil, pop(w.q))
		time.Sleep(10 * time.Second)

		w.want("an outage", "4: failed 1, unavailable", "5: failed 1, unavailable")

		time.Sleep(10 * time.Second)
		w.want("the time of one is up", "2: failed 1, unavailable")

		faults.SetOutage(false)
		time.Sleep(2 * retryPause)
		w.want("it is over")

		w.submit(&Wait{Until: time.Now().Add(time.Second)}, pop(w.q))
		time.Sleep(time.Second)
		w.want("nothing is there", "6: empty")

		w.push("b")
		w.push("c")
		w.want("pushes", "1: b", "3: c")
	})
}

// A request with Wait.Retry outlives a failure of its first attempt.
func TestRetry(t *testing.T) {
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		faults.SetOutage(true)
		wait := w.minute()
		wait.Retry = true
		w.submit(wait, pop(w.q))
		w.submit(&Wait{Until: time.Now().Add(10 * time.Second), Retry: true}, pop(w.q))
		time.Sleep(10 * time.Second)

		w.want("the time of one is up", "2: failed 1, unavailable")

		faults.SetOutage(false)
		w.push("a")
		w.want("a later attempt", "1: a")
	})
}

// If nobody knows whether a waiter's item was taken, it is put back, and the waiter gets it
// then.
func TestWaitersAfterUnknownOutcomes(t *testing.T) {
	for _, fault := range []faultkv.Fault{
		faultkv.UnknownLost, faultkv.UnknownMade, faultkv.UnknownBeforeNext,
	} {
		withFaults(t, func(w *waiting, faults *faultkv.DB) {
			w.park(pop(w.q)) // 1
			w.park(pop(w.q)) // 2
			faults.Next(fault)

			go func() {
				for range 5 { // the attempts of the batch fail, until its time is up
					time.Sleep(time.Second)
				}
			}()

			w.submit(nil, push(w.q, "a")) // 3
			synctest.Wait()
			time.Sleep(20 * time.Second)

			w.want(fault.String(), "1: a")

			w.push("b")
			w.want(fault.String(), "2: b")
		})
	}
	// The same, but the batch fails before anybody finds out.
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		w.park(pop(w.q)) // 1
		w.park(pop(w.q)) // 2
		w.d.options.Warn = func(string, ...any) {}
		w.pushOfUnknownOutcome(faults) // 3
		time.Sleep(10 * time.Second)

		w.want("an outage before it is known", "3: failed 1, unknown")

		faults.SetOutage(false)
		time.Sleep(10 * time.Second)
		w.want("the push was made", "1: a")

		w.push("b")
		w.want("the next", "2: b")
	})
}

// pushOfUnknownOutcome pushes "a". The store goes away as soon as it has committed that.
func (w *waiting) pushOfUnknownOutcome(faults *faultkv.DB) {
	faults.Next(faultkv.UnknownMade)
	w.submit(nil, push(w.q, "a"))

	for faults.Counts()[faultkv.UnknownMade] == 0 {
		time.Sleep(time.Nanosecond)
	}

	faults.SetOutage(true)
}

// A lease of unknown outcome belongs to nobody until it is over. So the request that waits for it
// is told, and does not get the next item as if that were the first.
func TestWaitingLeaseOfUnknownOutcome(t *testing.T) {
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		w.park(w.lease()) // 1
		w.d.options.Warn = func(string, ...any) {}
		w.pushOfUnknownOutcome(faults) // 2
		time.Sleep(10 * time.Second)

		w.want("an outage before it is known", "2: failed 1, unknown", "1: failed 1, unknown")

		faults.SetOutage(false) // or the lane never ends
		w.push("b")
		w.want("nobody waits")
	})
}

// When ctx ends, everything ends.
func TestCancelledWaiters(t *testing.T) {
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		d := New(w.d.options)
		ctx, cancel := context.WithCancel(w.t.Context())
		done := make(chan struct{})

		go func() {
			defer close(done)
			d.Run(ctx)
		}()

		other := &waiting{
			t:   t,
			d:   d,
			q:   getQueue(t, d.queues, w.q.Kind, "others"),
			log: w.log,
			n:   100,
		}

		other.park(pop(other.q))
		faults.SetOutage(true)
		other.submit(nil, pop(other.q))
		cancel()
		d.Close()
		<-done

		if d.Waiters() != 0 {
			t.Errorf("%d waiters are left", d.Waiters())
		}

		for _, event := range w.log.take() {
			if event != "101: failed 1, unavailable" && event != "102: failed 1, unavailable" {
				t.Errorf("unexpected: %s", event)
			}
		}
	})
}

// With two batches in flight, nobody overtakes a waiter of the first, and items that come with the
// second are not forgotten.
func TestWaitersWithTwoBatchesInFlight(t *testing.T) {
	withLater(t, func(o *Options) { o.RequestTimeout = 3 * time.Hour },
		func(w *waiting, durable chan struct{}) {
			next := func() {
				t.Helper()
				synctest.Wait()
				durable <- struct{}{}
				synctest.Wait()
			}

			w.submit(w.minute(), pop(w.q)) // 1, alone in its batch
			synctest.Wait()

			w.inOneBatch(func() { // in the second batch
				w.add(w.q, w.minute(), pop(w.q)) // 2
				w.add(w.q, nil, push(w.q, "a"))  // 3
				w.add(w.q, nil, pop(w.q))        // 4
			})

			next()
			w.want("the first is durable")

			next()
			w.want("the push is")

			next()
			w.want("the line has looked again", "1: a", "4: empty")

			w.submit(nil, push(w.q, "b")) // 5: in one batch with 2
			synctest.Wait()

			w.inOneBatch(func() {
				w.add(w.q, w.minute(), pop(w.q)) // 6
				l := w.d.lanes[0]
				l.wakeLineLocked(l.lineLocked(w.q), wakeBudget) // while 2 is in flight
			})

			next()
			w.want("the second", "2: b")

			next()
			if w.d.Waiters() != 1 {
				t.Errorf("%d waiters, want 6", w.d.Waiters())
			}

			w.submit(nil, push(w.q, "c"))
			synctest.Wait()
			time.Sleep(time.Minute + maxLate/2)

			w.want("its time is up while its batch is in flight")

			next()
			w.want("its batch decides", "6: c")

			close(durable)
		})
}
