package dispatch

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Counts are saved with one transaction when a minute with traffic is over. Without traffic there
// is none; the end saves the rest.
func TestSaverIsIdle(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		s := w.start(0, func(o *Options) { o.ID = "a" })
		ctx, stop := context.WithCancel(w.Context())
		var saving sync.WaitGroup
		saving.Go(func() { s.d.SaveTraffic(ctx) })
		time.Sleep(time.Minute) // the sweeper looks at the list of queues

		untilMinute := func() time.Duration {
			now := time.Now()
			return now.Truncate(time.Minute).Add(time.Minute).Sub(now)
		}
		w.want("a day without traffic", w.sleep(24*time.Hour), 0)
		for range 3 {
			time.Sleep(untilMinute() + 10*time.Second)
			s.do("jobs", pushFor(0), pushFor(0))
			w.want("the rest of the minute", w.sleep(untilMinute()-time.Nanosecond), 0)
			w.want("its end", w.sleep(time.Nanosecond), 1)
		}
		for range 3 {
			s.do("jobs", pushFor(0))
			w.want("each minute with traffic", w.sleep(time.Minute), 1)
		}
		w.want("a day without traffic", w.sleep(24*time.Hour), 0)

		s.do("jobs", fdbpq.Op{Kind: fdbpq.OpPop})
		stop()
		saving.Wait()
		w.want("nothing at once", w.sleep(0), 0)
		s.d.EndTraffic(w.Context())
		next := w.start(1, func(o *Options) { o.ID = "b" })
		next.d.SaveTrafficNow(w.Context())
		if total, _, _ := next.d.Traffic(0); total.Day.Out != 1 {
			t.Errorf("%+v, want what was done last", total)
		}
	})
}
