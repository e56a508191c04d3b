package dispatch

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// steppedClock is a clock that the test sets. As with time.Now, a step shows in the wall clock
// reading of its times and not in the monotonic one.
type steppedClock struct{ ahead atomic.Int64 }

func (c *steppedClock) now() time.Time {
	now := time.Now()
	wall := now.Round(0).Add(time.Duration(c.ahead.Load()))

	// Package time has no function for that: Add changes both readings. The first word of a time
	// with both is a flag, 33 bits of seconds since 1885, and 30 of nanoseconds.
	seconds := wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	*(*uint64)(unsafe.Pointer(&now)) = 1<<63 | uint64(seconds)<<30 | uint64(wall.Nanosecond())
	return now
}

func (c *steppedClock) step(by time.Duration) { c.ahead.Add(int64(by)) }

// watched is inBubble with a clock that the test sets.
func watched(t *testing.T, test func(w *waiting, clock *steppedClock)) {
	t.Helper()
	clock := &steppedClock{}
	inBubble(t, func(o *Options) { o.Now = clock.now }, func(w *waiting) { test(w, clock) })
}

// When the clock is stepped forward, waiting pops get the items that fall due, after leases, delays
// and pauses.
func TestClockStepsForward(t *testing.T) {
	watched(t, func(w *waiting, clock *steppedClock) {
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour}
		w.push("a")
		w.submit(w.minute(), lease)

		w.want("a lease", "2: a")

		delayed := push(w.q, "b")
		delayed.Delay = 2 * time.Hour
		w.submit(nil, delayed)
		w.park(pop(w.q)) // 4
		w.park(pop(w.q)) // 5
		time.Sleep(10 * time.Second)

		w.want("nothing is due")

		clock.step(time.Hour)
		time.Sleep(watchEvery)
		w.want("the lease is over", "4: a")

		clock.step(time.Hour)
		time.Sleep(watchEvery)
		w.want("the delay is over", "5: b")

		paused := func(s *fdbpq.Settings) { s.PauseUntil = clock.now().Add(time.Hour) }
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: w.q.Target, Configure: paused}) // 6
		w.push("c")
		w.log.take()
		w.park(pop(w.q)) // 8
		time.Sleep(10 * time.Second)

		w.want("the queue is paused")

		clock.step(time.Hour)
		time.Sleep(watchEvery)
		w.want("the pause is over", "8: c")
	})
}

// The clock of these tests moves as the system's does.
func TestSteppedClock(t *testing.T) {
	clock := &steppedClock{}
	before := clock.now()

	clock.step(-90*time.Minute - 3*time.Millisecond)
	after := clock.now()

	if by := after.Round(0).Sub(before.Round(0)).Round(time.Minute); by != -90*time.Minute {
		t.Errorf("the wall clock moved by %v, want %v", by, -90*time.Minute)
	}
	if by := after.Sub(before); by < 0 || by > time.Minute {
		t.Errorf("the monotonic clock moved by %v", by)
	}
}

// When the clock is stepped back, nothing comes too early, and it costs one look. Pops that wait
// end when their time is up, whatever the clock says.
func TestClockStepsBack(t *testing.T) {
	watched(t, func(w *waiting, clock *steppedClock) {
		w.push("a")
		w.submit(w.minute(),
			fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: 10 * time.Second})
		w.want("a lease", "2: a")

		w.park(pop(w.q)) // 3
		w.submit(until(30*time.Second), pop(w.q))
		synctest.Wait()
		w.takeTransactions()
		clock.step(-40 * time.Second)
		time.Sleep(49 * time.Second)

		w.want("not yet, by the clock", "4: empty")
		if n := w.takeTransactions(); n > 2 {
			t.Errorf("%d transactions, want one look", n)
		}

		time.Sleep(time.Second)
		w.want("now", "3: a")
	})
}

// Without a step, pops that wait cost no transactions.
func TestClockThatIsRight(t *testing.T) {
	watched(t, func(w *waiting, clock *steppedClock) {
		w.submit(w.minute(), fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour})
		delayed := push(w.q, "a")
		delayed.Delay = time.Hour
		w.submit(nil, delayed)
		synctest.Wait()
		w.takeTransactions()

		for range 50 {
			clock.step(watchTolerance / 100) // as a clock that is slewed
			time.Sleep(time.Second)
		}
		w.want("it waits")
		w.wantTransactions(0, "")
	})
}

// The clock is watched as soon as a lane has a waiter, not only once its timers have something else
// to do.
func TestClockStepsBehindTheFirstWaiter(t *testing.T) {
	watched(t, func(w *waiting, clock *steppedClock) {
		delayed := push(w.q, "a")
		delayed.Delay = time.Hour
		w.submit(nil, delayed)
		w.log.take()
		w.park(pop(w.q)) // 2
		clock.step(time.Hour)
		time.Sleep(watchEvery)

		w.want("the delay is over", "2: a")
	})
}
