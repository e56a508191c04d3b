package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

func (w *waiting) lease() fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: 30 * time.Second}
}

// token returns the token of a lease, in the order in which they were given.
func (w *waiting) token(n int) fdbpq.Token {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.mu.tokens[n]
}

func (w *waiting) settle(kind fdbpq.OpKind, n int) fdbpq.Op {
	return fdbpq.Op{Kind: kind, Queue: w.q.Target, Token: w.token(n)}
}

// atMaxLeased has one of the given items leased, and no other may be.
func (w *waiting) atMaxLeased(items ...string) {
	w.t.Helper()
	w.configure(func(s *fdbpq.Settings) { s.MaxLeased = 1 })

	for _, item := range items {
		w.push(item)
	}

	w.submit(nil, w.lease())
	w.want("one is leased", fmt.Sprint(w.n, ": ", items[0]))

	w.n = 100
}

// Each way in which a lease ends serves a lease that waits: ack, nak, term, the end of its time,
// and a change of the setting.
func TestFreedPlacesServeWaiters(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a", "b", "c", "d", "e", "f", "g")
		for range 6 {
			w.park(w.lease()) // 101 to 106
		}
		w.want("nothing yet")

		w.takeTransactions()
		time.Sleep(time.Second)
		w.want("nothing happens")
		w.wantTransactions(0, "while nothing happens")

		w.submit(nil, w.settle(fdbpq.OpAck, 0))
		w.want("ack", "101: b")

		nak := w.settle(fdbpq.OpNak, 1)
		nak.Delay = time.Hour
		w.submit(nil, nak)

		w.want("nak with a delay", "102: c")

		w.submit(nil, w.settle(fdbpq.OpTerm, 2))
		w.want("term", "103: d")

		time.Sleep(30 * time.Second)
		w.want("the lease is over", "104: d")

		w.submit(nil, w.settle(fdbpq.OpNak, 4))
		w.want("nak", "105: d")

		w.configure(func(s *fdbpq.Settings) { s.MaxLeased = 2 })
		w.want("raised", "106: e")
	})
}

// parkLeases has 40 leases wait, more than a batch looks at.
func (w *waiting) parkLeases() {
	w.t.Helper()
	for range 40 {
		w.park(w.lease())
	}
}

// A lease that does not wait is told at once that max_leased is met, even if others wait.
func TestMaxLeasedWithoutWait(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a", "b")
		w.submit(nil, w.lease())
		w.want("without a line", "101: leased")

		w.parkLeases() // 102 to 141
		w.submit(nil, w.lease())
		w.want("behind a line", "142: failed 1, leased")
	})
}

// Plain pops do not count against max_leased, and pass the leases that wait for a place.
func TestPopsPassLeases(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a", "b", "c")
		w.parkLeases() // 101 to 140

		w.submit(nil, pop(w.q))
		w.want("a pop", "141: b")

		w.submit(w.minute(), pop(w.q))
		w.want("a pop that would wait", "142: c")

		w.submit(nil, pop(w.q))
		w.want("the queue is empty", "143: empty")

		w.park(pop(w.q)) // 144
		w.push("d")
		w.want("a pop that waits", "144: d")
	})
}

// A lease that follows an acknowledgement takes the place that this has freed, before those that
// wait.
func TestNextLeasePassesLeases(t *testing.T) {
	for name, wait := range map[string]func(*waiting) *Wait{
		"does not wait": func(*waiting) *Wait { return nil },
		"would wait":    (*waiting).minute,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(w *waiting) {
				w.atMaxLeased("a", "b", "c")
				w.parkLeases() // 101 to 140

				next := w.lease()
				next.Follows = true
				w.submit(wait(w), w.settle(fdbpq.OpAck, 0), next)

				w.want("the next", "141:  b")
			})
		})
	}
}

// An item that comes while max_leased is met waits for a place, which goes to the first in line.
func TestPlaceGoesToTheFirstLease(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a")
		w.parkLeases() // 101 to 140

		w.push("b")
		w.want("no place")

		w.submit(nil, w.settle(fdbpq.OpAck, 0))
		w.want("a place", "101: b")
	})
}

// A pop of several items gets as many as there are places, and the rest as places become free.
func TestBatchAtMaxLeased(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.configure(func(s *fdbpq.Settings) { s.MaxLeased = 2 })
		for _, item := range []string{"a", "b", "c", "d"} {
			w.push(item)
		}

		w.submit(nil, pops(w.lease(), 3)...) // 6
		w.want("what fits", "6: a b leased")

		w.submit(nil, w.settle(fdbpq.OpAck, 0)) // 7
		w.park(pops(w.lease(), 3)...)           // 8
		w.want("the first", "8: part c")

		w.submit(nil, w.settle(fdbpq.OpAck, 1)) // 9
		w.want("the second", "8: part d")

		time.Sleep(29 * time.Second)
		w.submit(nil, w.settle(fdbpq.OpAck, 2))
		w.push("e")

		w.want("the third", "8: e")
	})
}

// A lease after acknowledgements that succeeded never fails as if nothing had been done. Without a
// place for it, it finds nothing. The place of the acknowledged lease may be taken, if that lease
// was over.
func TestNextWithoutAPlace(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		next := func(n int) []fdbpq.Op {
			lease := w.lease()
			lease.Follows = true
			return []fdbpq.Op{w.settle(fdbpq.OpAck, n), lease, lease}
		}

		// lateToken leases the first item, and then, after that lease is over, the last.
		lateToken := func() (n int) {
			w.log.mu.Lock()
			n = len(w.log.mu.tokens)
			w.log.mu.Unlock()
			w.submit(nil, w.lease())
			time.Sleep(time.Minute)
			last := w.lease()
			last.End = fdbpq.Back
			w.submit(nil, last)
			synctest.Wait()
			w.log.take()

			return n
		}

		w.configure(func(s *fdbpq.Settings) { s.MaxLeased = 1 })
		for _, item := range []string{"a", "b", "c", "d", "e", "f"} {
			w.push(item)
		}

		n := lateToken()
		w.n = 200
		w.submit(nil, next(n)[:2]...)

		w.want("one", "201:  waited")

		w.submit(nil, w.settle(fdbpq.OpAck, n))
		w.want("it counts", "202: lost")

		time.Sleep(time.Minute)
		n = lateToken()
		w.n = 300
		w.park(w.lease()) // 301
		w.submit(nil, next(n)[:2]...)

		w.want("behind others", "302:  waited")

		w.submit(nil, w.settle(fdbpq.OpAck, n))
		w.want("it counts", "303: lost")

		w.n = 400
		w.submit(nil, w.settle(fdbpq.OpAck, n+1))
		w.want("the place", "301: c")

		w.configure(func(s *fdbpq.Settings) { s.MaxLeased = 2 })
		w.log.take()
		w.n = 500
		w.submit(nil, next(n+2)...)

		w.want("some", "501:  d e")

		w.push("g")
		w.configure(func(s *fdbpq.Settings) { s.MaxLeased = 1 })
		w.n = 600
		w.submit(nil, next(n+3)...)

		w.want("lowered", "601:  waited")
	})
}

// An acknowledgement with a lease that follows it is done at once, even in a line whose leases are
// left out and where a pop waits before it.
func TestNextBehindPopAtMaxLeased(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a", "b")
		w.inOneBatch(func() { // the lease meets max_leased, and the second pop nothing
			for _, op := range []fdbpq.Op{w.lease(), pop(w.q), pop(w.q)} {
				w.add(w.q, w.minute(), op)
			}
		})
		w.want("a pop gets the other item", "102: b")

		next := w.lease()
		next.Follows = true
		w.submit(nil, w.settle(fdbpq.OpAck, 0), next)

		w.want("the next", "104: empty")

		w.push("c")
		w.want("a push", "101: c")

		w.push("d")
		w.want("another", "103: d")
	})
}

func (w *waiting) configure(change func(*fdbpq.Settings)) {
	w.t.Helper()
	w.submit(nil, fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: w.q.Target, Configure: change})
}

// Pops that wait for items of a paused queue get them when the pause ends: at its time, or when the
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

		w.takeTransactions()
		time.Sleep(9999 * time.Millisecond)
		w.want("just before its end")
		w.wantTransactions(0, "during a pause")

		time.Sleep(time.Millisecond)
		w.want("its end", "2: a")

		at = time.Now().Add(time.Hour)
		w.configure(set)
		w.push("b")

		w.want("another pause")

		at = time.Time{}
		w.configure(set)
		w.want("lifted", "3: b")

		at = time.Now().Add(time.Hour)
		w.configure(set)
		w.park(pop(w.q)) // 10
		time.Sleep(time.Hour)

		w.want("longer than the pop waits", "10: paused")
	})
}

func (w *waiting) release(id fdbpq.ID) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpRelease, Queue: w.q.Target, ID: id}
}

// A redriven dead letter goes to a pop that waits for it.
func TestRedriveServesWaiters(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.push("a")
		w.submit(nil, w.lease())
		w.want("leased", fmt.Sprint(w.n, ": a"))

		w.submit(nil, w.settle(fdbpq.OpTerm, 0))
		w.park(fdbpq.Op{Kind: fdbpq.OpPop, Queue: w.q.Target}) // 4

		dead := getQueue(t, w.d.queues, subjects.Priority, "jobs-dead")
		redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: dead.Target}

		_, err := new(fdbpq.Browse).Walk(t.Context(), w.store, dead.Target, time.Now(),
			func(item *fdbpq.Browsed) bool {
				redrive.ID = item.ID
				return true
			})
		must(t, err)
		w.inOneBatch(func() { w.add(dead, nil, redrive) })

		w.want("the item", "4: a")
	})
}
