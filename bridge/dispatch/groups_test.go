package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// pushGroup pushes items of the groups that their first letters name.
func (w *waiting) pushGroup(items ...string) {
	w.t.Helper()
	for _, item := range items {
		op := push(w.q, item)
		op.Message.Headers = map[string][]string{fdbpq.GroupHeader: {item[:1]}}
		w.submit(nil, op)
		time.Sleep(time.Millisecond) // equal counts are ordered by the clock
	}
	w.want("pushed")
}

// atGroupLimit has one item of each group leased, and no other may be.
func (w *waiting) atGroupLimit(groups ...string) {
	w.t.Helper()
	w.configure(func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })

	for _, group := range groups {
		w.pushGroup(group+"1", group+"2", group+"3")
	}

	for _, group := range groups {
		w.submit(nil, w.lease())
		w.want("one is leased", fmt.Sprint(w.n, ": ", group, "1"))
	}

	w.n = 100
}

// Each way in which a lease ends serves a pop or lease that waits for its group: ack, term, nak
// with a delay, the end of its time, and a change of the setting.
func TestFreedPlacesOfGroups(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atGroupLimit("a", "b", "c", "d", "e")
		for range 5 {
			w.park(w.lease()) // 101 to 105
		}
		w.want("nothing yet")

		w.submit(nil, w.settle(fdbpq.OpAck, 1))
		w.want("ack", "101: b2")

		w.submit(nil, w.settle(fdbpq.OpTerm, 2))
		w.want("term", "102: c2")

		nak := w.settle(fdbpq.OpNak, 3)
		nak.Delay = time.Hour
		w.submit(nil, nak)

		w.want("nak with a delay", "103: d2")

		w.configure(func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 0 })
		w.want("no limit", "104: a2", "105: e2")
	})
}

// Pops without a lease take no place, so one free place is enough for all of them.
func TestFreedPlaceServesPops(t *testing.T) {
	for _, end := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpTerm, fdbpq.OpRelease} {
		inBubble(t, nil, func(w *waiting) {
			w.atGroupLimit("a", "b")
			w.park(pop(w.q))  // 101
			w.park(w.lease()) // 102
			w.park(pop(w.q))  // 103
			op := w.settle(end, 0)
			want := []string{"101: a2", "102: a3"}

			if end == fdbpq.OpRelease {
				op, want = w.release(op.Token.ID), []string{"101: a1", "102: a2"}
			}

			w.submit(nil, op)
			w.want("one place is free", want...)
		})
	}
}

// A place that becomes free while the answers to a batch that found none are under way is not
// missed.
func TestFreedPlacesOfGroupsBesideABatch(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atGroupLimit("a")
		w.push("x") // it has no group
		taken := make(chan struct{})
		ack := &Request{Queue: w.q, Replier: number(w.log, 1000), Received: time.Now()}
		ack.OutOfTouch = func() bool {
			close(taken) // a batch is about to take it
			return false
		}

		w.log.told = func(*Request) {
			w.log.told = nil
			// With it, a batch is large enough to begin.
			w.submit(nil, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: w.q.Target})
			must(w.t, w.d.Submit(ack, []fdbpq.Op{w.settle(fdbpq.OpAck, 0)}))
			<-taken
		}

		w.n = 200
		w.submit(w.minute(), pops(w.lease(), 2)...)
		w.want("both", "201: part x", "202: a2", "201: a2")
	})
}

// An item whose lease runs out frees a place for its group, and comes first.
func TestExpiredLeasesOfGroups(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atGroupLimit("a", "b")
		w.park(w.lease()) // 101
		w.park(pop(w.q))  // 102
		time.Sleep(30 * time.Second)

		w.want("their time is over", "101: a1", "102: b1")
	})
}

// A pop that waits gets an item with the next token of the queue, or of its group, and nothing
// happens before.
func TestTokensServeWaiters(t *testing.T) {
	for name, test := range map[string]struct {
		set    func(*fdbpq.Settings)
		second string
	}{
		"rate":           {func(s *fdbpq.Settings) { s.Rate = "1/10s" }, "b1"},
		"rate_per_group": {func(s *fdbpq.Settings) { s.RatePerGroup = "1/10s" }, "a2"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(w *waiting) {
				w.pushGroup("a1", "a2")
				if name == "rate" {
					w.pushGroup("b1")
				}

				w.configure(test.set)
				w.submit(nil, pop(w.q))
				w.want("the first", fmt.Sprint(w.n, ": a1"))

				w.n = 100
				w.park(pop(w.q)) // 101
				w.want("the others wait")

				w.takeTransactions()
				time.Sleep(9999 * time.Millisecond)
				w.want("not yet")
				w.wantTransactions(0, "before there is a token")

				time.Sleep(time.Millisecond)
				w.want("a token", "101: "+test.second)
			})
		})
	}
}

// A pop that does not wait is told that the rate is used up. One that has waited ends as if the
// queue were empty.
func TestWhoMeetsRate(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		for _, item := range []string{"a", "b", "c"} {
			w.push(item)
		}

		w.configure(func(s *fdbpq.Settings) { s.Rate = "1/1h" })
		w.n = 100
		w.submit(nil, pops(w.lease(), 2)...)

		w.want("what there is", "101: a rate")

		w.submit(nil, pop(w.q))
		w.want("without a line", "102: rate")

		next := w.lease()
		next.Follows = true
		w.submit(nil, w.settle(fdbpq.OpAck, 0), next)

		w.want("the next", "103:  waited")

		w.park(pop(w.q)) // 104
		w.submit(nil, pop(w.q))
		w.want("behind a line", "105: rate")

		time.Sleep(time.Minute)
		w.want("when time is up", "104: waited")
	})
}
