package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// dueQueue is a bridge with a queue where very much falls due at once.
type dueQueue struct {
	*sweepBridge
	steppedClock
}

// inDueQueue fills a queue with n items, the last of them with the smallest priority, and lets all
// of them fall due: their leases end if leased is set, else they expire. A live item comes behind
// them.
func inDueQueue(
	t *testing.T, n int, leased bool, configure func(*Options), test func(q *dueQueue),
) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		q := &dueQueue{}
		w.batcher.SetNow(q.now)

		for done := 0; done < n; done += 1000 {
			var ops []fdbpq.Op
			for i := range 1000 {
				op := fdbpq.Op{
					Kind:     fdbpq.OpPush,
					Priority: int64(n - done - i),
					Message:  fdbpq.Message{Value: []byte("item")},
				}

				if !leased {
					op.TTL = time.Hour
				}

				ops = append(ops, op)
			}

			w.applyAsOther("jobs", ops...)
			if leased {
				w.applyAsOther("jobs", slices.Repeat([]fdbpq.Op{leaseFor(time.Hour)}, 1000)...)
			}
		}

		live := fdbpq.Op{
			Kind:     fdbpq.OpPush,
			Priority: int64(n + 1),
			Message:  fdbpq.Message{Value: []byte("live")},
		}

		w.applyAsOther("jobs", slices.Repeat([]fdbpq.Op{live}, 1000)...)
		w.applyAsOther("other", slices.Repeat([]fdbpq.Op{live}, 1000)...)

		q.sweepBridge = w.start(0, func(o *Options) {
			o.Now = q.now
			o.DB = slowDB(o.DB, time.Millisecond)

			if configure != nil {
				configure(o)
			}
		})

		w.sleep(time.Second)
		q.step(2 * time.Hour)
		test(q)
	})
}

// ask submits an operation and waits for its result, as long as that takes.
func (q *dueQueue) ask(queue string, wait *Wait, op fdbpq.Op) string {
	q.Helper()
	c := q.submit(queue, wait, op)
	results, err := c.wait(q.Context())
	if err != nil {
		return short(err)
	}

	return outcome(results)
}

// The sweeper and the pops of a queue where very many leases end at once do not get in each other's
// way, other queues are served meanwhile, and the rest is brought back at once.
func TestSweeperAndPopsDoNotFight(t *testing.T) {
	n := harness.Times(5_000, 20_000)
	inDueQueue(t, n, true, nil, func(q *dueQueue) {
		began := time.Now()
		pops := 0

		for q.info("jobs").Leased > 0 && pops < 900 {
			for _, queue := range []string{"jobs", "other"} {
				asked := time.Now()
				got := q.ask(queue, nil, fdbpq.Op{Kind: fdbpq.OpPop})

				if got != "item" && got != "live" {
					q.Fatalf("pop of %s: %s", queue, got)
				}

				if took := time.Since(asked); took > 100*time.Millisecond {
					q.Errorf("a pop of %s took %v", queue, took)
				}
			}
			pops++
		}

		if took := time.Since(began); pops < 5 || took > 2*time.Second {
			q.Errorf("%d pops, until all was back after %v", pops, took)
		}
		q.want("conflicts", q.d.Conflicts(), 0)
		q.want("back", q.info("jobs").Ready, n+1000-pops)
	})
}

// Live items behind very many expired ones are served, to pops that wait and to others, and so are
// other queues. A peek cannot remove expired items, but succeeds as others remove them.
func TestLiveItemsBehindExpired(t *testing.T) {
	n := harness.Times(3_000, 20_000)
	inDueQueue(t, n, false, nil, func(q *dueQueue) {
		q.want("peeked", q.ask("jobs", nil, fdbpq.Op{Kind: fdbpq.OpPeek}), "live")
	})

	for _, waits := range []bool{false, true} {
		inDueQueue(t, n, false, nil, func(q *dueQueue) {
			var wait *Wait
			if waits {
				wait = &Wait{Until: time.Now().Add(time.Minute)}
			}

			began := time.Now()
			q.want("popped", q.ask("jobs", wait, fdbpq.Op{Kind: fdbpq.OpPop}), "live")

			if took := time.Since(began); took > time.Second {
				q.Errorf("it took %v", took)
			}
			q.want("popped elsewhere", q.ask("other", nil, fdbpq.Op{Kind: fdbpq.OpPop}), "live")

			q.sleep(2 * time.Second)
			q.want("left", q.info("jobs").Ready, 999)
			q.want("expired", q.d.SideEffects().Expired, n)
		})
	}
}

// A pop that meets only expired items until its time is up is told that the store takes too long,
// not that the queue is empty: there are live items behind them. Pops that try again get those.
func TestPopsNeverMissLiveItemsBehindExpired(t *testing.T) {
	n := harness.Times(8_000, 20_000)
	for _, waits := range []bool{false, true} {
		var d *Dispatcher
		slow := func(o *Options) {
			o.DB = slowDB(o.DB, 700*time.Millisecond)
			o.RequestTimeout = 2 * time.Second
			o.RequeueLate = givesBack(&d)
		}

		inDueQueue(t, n, false, slow, func(q *dueQueue) {
			d = q.d
			failed := 0

			for {
				var wait *Wait
				if waits {
					wait = &Wait{Until: time.Now().Add(500 * time.Millisecond)}
				}

				got := q.ask("jobs", wait, fdbpq.Op{Kind: fdbpq.OpPop})
				if got == "live" {
					break
				}

				if failed++; failed > 10 ||
					!strings.Contains(got, "unavailable") && !strings.Contains(got, "unknown") {
					q.Fatalf("pop %d: %s", failed, got)
				}
			}

			if failed == 0 {
				q.Error("no pop has run out of time")
			}
		})
	}
}

// Any operation that brings an item back wakes the pop that waits for it, and rings for other
// bridges.
func TestInfoWakes(t *testing.T) {
	for name, op := range map[string]fdbpq.Op{
		"info":  {Kind: fdbpq.OpInfo},
		"len":   {Kind: fdbpq.OpLen},
		"peek":  {Kind: fdbpq.OpPeek, End: fdbpq.Back},
		"sweep": {Kind: fdbpq.OpSweep},
	} {
		var clock steppedClock
		var rings []string

		configure := func(o *Options) {
			o.Now = clock.now
			o.Filled = func(q *Queue) { rings = append(rings, q.Name) }
		}

		inBubble(t, configure, func(w *waiting) {
			delayed := push(w.q, "late")
			delayed.Delay = time.Hour
			w.submit(nil, delayed)
			first := w.park(w.pops(fdbpq.Front, 1)...)
			rings = nil
			clock.step(2 * time.Hour)

			w.want("before")

			op.Queue = w.q.Target
			w.submit(nil, op)
			synctest.Wait()
			found := false

			for _, event := range w.log.take() {
				found = found || event == fmt.Sprintf("%d: late", first)
			}
			if !found || fmt.Sprint(rings) != "[jobs]" {
				t.Errorf("%s: the pop that waits has it: %t; rings: %v", name, found, rings)
			}
		})
	}
}

// A dead letter that leaves no room for anything else gets a batch of its own, however busy its
// lane is.
func TestSweepOfALargeDeadLetterAlone(t *testing.T) {
	inSweepTest(t, ownStore, func(w *sweepTest) {
		w.applyAsOther("large", oneDelivery())
		w.applyAsOther("large", fdbpq.Op{
			Kind:    fdbpq.OpPush,
			Message: fdbpq.Message{Value: make([]byte, fdbpq.MaxMessageSize)},
		})

		w.applyAsOther("large", leaseFor(time.Minute))
		a := w.start(0, func(o *Options) { o.DB = slowDB(o.DB, 100*time.Millisecond) })
		time.Sleep(55 * time.Second)
		ends := time.Now().Add(20 * time.Second)

		for range 8 {
			go func() {
				for time.Now().Before(ends) {
					a.do("busy", fdbpq.Op{
						Kind:    fdbpq.OpPush,
						Message: fdbpq.Message{Value: make([]byte, 30_000)},
					})
				}
			}()
		}

		time.Sleep(19 * time.Second)
		w.want("dead", w.stored("large-dead"), 1)

		time.Sleep(2 * time.Second) // until the others have ended
	})
}

// Queues with very many or very large due items hold up neither each other nor a dead letter of
// another queue, and requests only for a few transactions of bounded size.
func TestSweepingTakesTurns(t *testing.T) {
	const takes = 20 * time.Millisecond // a commit
	inSweepTest(t, ownStore, func(w *sweepTest) {
		a := w.start(0, func(o *Options) { o.DB = slowDB(o.DB, takes) })
		w.applyAsOther("dead", oneDelivery())
		left := map[string]int64{"many": 8_000, "more": 8_000, "large": 300}
		total := int64(0)

		for queue, n := range left {
			total += n
			for range n / 1000 {
				w.applyAsOther(queue, slices.Repeat([]fdbpq.Op{pushFor(time.Minute)}, 1000)...)
			}
		}

		large := pushFor(time.Minute)
		large.Message.Value = make([]byte, 90_000)

		for range 6 {
			w.applyAsOther("large", slices.Repeat([]fdbpq.Op{large}, 50)...)
		}

		w.applyAsOther("dead", fdbpq.Op{Kind: fdbpq.OpPush})
		w.applyAsOther("dead", leaseFor(time.Minute+time.Millisecond)) // after all else
		live := fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: []byte("live")}}
		w.applyAsOther("other", slices.Repeat([]fdbpq.Op{live}, 2000)...)
		a.d.OwnersChanged()
		w.sleep(time.Minute + time.Second)

		q := &dueQueue{sweepBridge: a}
		began, expired := time.Now(), a.d.SideEffects().Expired
		turns := []map[string]int64{left} // the items left after each removal
		dead := 0                         // turns before the dead letter had moved

		for a.d.SideEffects().Expired < total && time.Since(began) < deadline {
			asked := time.Now()
			if got := q.ask("other", nil, fdbpq.Op{Kind: fdbpq.OpPop}); got != "live" {
				t.Fatalf("pop of another queue: %s", got)
			}

			if took := time.Since(asked); took > 4*takes {
				t.Errorf("a pop of another queue took %v", took)
			}

			if now := a.d.SideEffects().Expired; now > expired {
				if now-expired > 4*2048 {
					t.Errorf("%d items were removed within the time of a pop", now-expired)
				}

				expired = now
				turns = append(turns, map[string]int64{
					"many":  w.stored("many"),
					"more":  w.stored("more"),
					"large": w.stored("large"),
				})
			}

			if dead == 0 && w.stored("dead-dead") > 0 {
				dead = len(turns)
			}
		}

		if dead == 0 || dead > len(turns)/2 {
			t.Errorf("the dead letter has moved after %d of %d turns", dead, len(turns))
		}

		for i := range len(turns) - 3 {
			for queue := range left {
				if before := turns[i][queue]; before > 0 && turns[i+3][queue] == before {
					t.Errorf("%s has waited for three turns: %v", queue, turns[i:i+4])
				}
			}
		}
		w.want("expired", a.d.SideEffects().Expired, total)
	})
}
