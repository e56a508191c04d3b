package dispatch

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

func (w *waiting) configure(change func(*fdbpq.Settings)) {
	w.t.Helper()
	w.submit(nil, fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: w.q.Target, Configure: change})
}

// Whoever waits for items of a paused queue gets them when the pause ends: at its time, or when the
// setting is changed.
func TestWaitersAndPause(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		var at time.Time
		set := func(s *fdbpq.Settings) { s.PauseUntil = at }
		at = time.Now().Add(10 * time.Second)
		w.configure(set)
		w.park(pop(w.q)) // 2
		w.park(pop(w.q)) // 3
		w.push("a")
		w.submit(nil, pop(w.q)) // 5
		w.want("a pause", "5: paused")
		w.transactions()
		time.Sleep(9999 * time.Millisecond)
		w.want("just before its end")
		if n := w.transactions(); n != 0 {
			t.Errorf("%d transactions during a pause", n)
		}
		time.Sleep(time.Millisecond)
		w.want("its end", "2: a")

		at = time.Now().Add(time.Hour)
		w.configure(set)
		w.push("b")
		w.want("another pause")
		at = time.Now().Add(20 * time.Second)
		w.configure(set)
		w.want("a shorter one")
		time.Sleep(20 * time.Second)
		w.want("its end", "3: b")

		at = time.Now().Add(time.Hour)
		w.configure(set)
		w.park(pop(w.q)) // 10
		w.push("c")
		w.want("a long pause")
		at = time.Time{}
		w.configure(set)
		w.want("lifted", "10: c")

		at = time.Now().Add(time.Hour)
		w.configure(set)
		w.park(pop(w.q)) // 14
		time.Sleep(time.Hour)
		w.want("longer than the pop waits", "14: paused")
	})
}
