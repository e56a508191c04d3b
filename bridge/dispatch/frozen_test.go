package dispatch

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A request that somebody else may have answered by the time of its batch is not run. Those around
// it are.
func TestRequestsOutOfTouchAreNotRun(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		unheard := &Request{
			Queue:      w.q,
			Replier:    number(w.log, 2),
			Received:   time.Now(),
			OutOfTouch: func() bool { return true },
		}

		w.submit(nil, push(w.q, "a"))
		w.n++
		must(t, w.d.Submit(unheard, []fdbpq.Op{push(w.q, "not run")}))

		w.log.submitted(w.n)
		w.submit(nil, pops(pop(w.q), 2)...)

		synctest.Wait()
		w.want("the second is not run", "2: failed 1, unavailable", "3: a empty")
	})
}

// A process that stood still while a pop committed does not send its item to a client that has
// given up: the item goes back, whether or not the timers come first.
func TestPopThatCommittedBeforeAFreeze(t *testing.T) {
	var returned atomic.Int64
	back := func(o *Options) {
		o.RequeueLate = func(*Queue, fdbpq.OpKind, *fdbpq.Result) { returned.Add(1) }
	}

	withLater(t, back, func(w *waiting, commits chan struct{}) {
		w.submit(nil, push(w.q, "a"))
		synctest.Wait()
		commits <- struct{}{}
		w.submit(nil, pop(w.q))
		synctest.Wait()

		w.want("before")

		// The timers do not fire, as if they came last.
		l := w.d.lanes[0]
		l.mu.Lock()
		l.timers.clear(&l.mu.overdue)
		l.mu.Unlock()
		time.Sleep(time.Minute)
		commits <- struct{}{}

		w.want("after", "2: failed 1, unknown")
		if n := returned.Load(); n != 1 {
			t.Errorf("%d items went back, want 1", n)
		}

		close(commits)
	})
}
