package dispatch

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// steppedClock is a clock that the test sets. The monotonic clock does not notice.
type steppedClock struct{ ahead atomic.Int64 }

func (c *steppedClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *steppedClock) step(by time.Duration) { c.ahead.Add(int64(by)) }

// watched is inBubble with a clock that the test sets.
func watched(t *testing.T, test func(w *waiting, clock *steppedClock)) {
	t.Helper()
	clock := &steppedClock{}
	inBubble(t, func(o *Options) { o.Now = clock.now }, func(w *waiting) { test(w, clock) })
}

// When the clock is stepped forward, waiting pops get what falls due: leases, delays, backoff and pauses.
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

// When the clock is stepped back, nothing comes too early, and it costs one look. Pops that wait end when
// their time is up, whatever the clock says.
func TestClockStepsBack(t *testing.T) {
	watched(t, func(w *waiting, clock *steppedClock) {
		w.push("a")
		w.submit(w.minute(), fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: 10 * time.Second})
		w.want("a lease", "2: a")
		w.park(pop(w.q)) // 3
		w.submit(until(30*time.Second), pop(w.q))
		synctest.Wait()
		w.transactions()
		clock.step(-40 * time.Second)
		time.Sleep(49 * time.Second)
		w.want("not yet, by the clock", "4: empty")
		if n := w.transactions(); n > 2 {
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
		w.transactions()
		for range 50 {
			clock.step(watchTolerance / 100) // as a clock that is slewed
			time.Sleep(time.Second)
		}
		w.want("it waits")
		w.wantTransactions(0, "")
	})
}

// The clock is watched from the first waiter of a lane on, not from the next time that the timers have something else
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
