package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// submitTogether submits requests that all come into the next batch.
func (w *waiting) submitTogether(requests [][]fdbpq.Op, wait func(i int) *Wait) {
	w.t.Helper()
	w.d.lanes[0].popSize.Store(100) // as after small items

	w.inOneBatch(func() {
		for i, ops := range requests {
			w.add(w.q, wait(i), ops...)
		}
	})
}

// singly is a request for each operation.
func singly(ops []fdbpq.Op) [][]fdbpq.Op { return slices.Collect(slices.Chunk(ops, 1)) }

func never(int) *Wait { return nil }

// One transaction has no room to lease, or give back, very many large items. Requests without room
// get it in the next one; nobody has to try again.
func TestRequestsThatFindNoRoom(t *testing.T) {
	const n, size = 150, 90_000
	for _, waits := range []bool{false, true} {
		inBubble(t, nil, func(w *waiting) {
			for range n {
				w.push(strings.Repeat("x", size))
			}

			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour}
			wait := never

			if waits { // so that the others queue up behind the first
				wait = func(i int) *Wait {
					if i == 0 {
						return w.minute()
					}
					return nil
				}
			}

			w.submitTogether(singly(slices.Repeat([]fdbpq.Op{lease}, n)), wait)
			for _, event := range w.log.take() {
				if len(event) < size {
					t.Fatalf("a lease, behind one that waits %t: %s", waits, event)
				}
			}

			var naks []fdbpq.Op
			for _, token := range w.log.mu.tokens {
				naks = append(naks, fdbpq.Op{Kind: fdbpq.OpNak, Queue: w.q.Target, Token: token})
			}

			w.submitTogether(singly(naks), never)
			for _, event := range w.log.take() {
				if strings.Contains(event, "too large") {
					t.Fatalf("given back: %s", event)
				}
			}
		})
	}
}

// Requests that acknowledge a lease and want the next one acknowledge it once, even if there is no
// room for the next one in the same transaction.
func TestNextThatFindsNoRoom(t *testing.T) {
	const n, size = 150, 90_000
	inBubble(t, nil, func(w *waiting) {
		for range n {
			w.push("small")
		}

		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour}
		w.submitTogether(singly(slices.Repeat([]fdbpq.Op{lease}, n)), never)
		w.log.take()

		for range n {
			w.push(strings.Repeat("x", size))
		}

		var requests [][]fdbpq.Op
		for _, token := range w.log.mu.tokens {
			next := lease
			next.Follows = true
			requests = append(requests,
				[]fdbpq.Op{{Kind: fdbpq.OpAck, Queue: w.q.Target, Token: token}, next})
		}

		w.takeTransactions()
		w.submitTogether(requests, never)
		if w.takeTransactions() < 2 {
			t.Error("there was room for all")
		}

		events := w.log.take()
		for _, event := range events {
			if len(event) < size {
				t.Fatalf("an acknowledgement and a lease: %s", event)
			}
		}
		if len(events) != n {
			t.Errorf("%d requests of %d were answered", len(events), n)
		}
	})
}

// Nor do such requests end because one transaction has no room to remove the attempts of all jobs
// that they acknowledge, whether they wait or not.
func TestNextOfFailedJobsThatFindsNoRoom(t *testing.T) {
	const n = 30
	for _, waits := range []bool{false, true} {
		tight := func(o *Options) { o.Limits.LeaseRoom = 1_000 } // for the attempts of a few
		inBubble(t, tight, func(w *waiting) {
			w.configure(func(s *fdbpq.Settings) { s.Trail = 8 })
			for range n {
				w.push("failed once")
			}
			w.submitTogether(singly(slices.Repeat([]fdbpq.Op{w.lease()}, n)), never)
			var naks []fdbpq.Op
			for lease := range n {
				naks = append(naks, w.settle(fdbpq.OpNak, lease))
			}
			w.submitTogether(singly(naks), never)
			w.submitTogether(singly(slices.Repeat([]fdbpq.Op{w.lease()}, n)), never)
			for range n {
				w.push("next")
			}
			w.log.take()

			var requests [][]fdbpq.Op
			for lease := range n {
				requests = append(requests, w.nextOf(1, n+lease))
			}
			w.takeTransactions()
			w.submitTogether(requests, func(int) *Wait {
				if waits {
					return w.minute()
				}
				return nil
			})
			if w.takeTransactions() < 2 {
				t.Errorf("waits %t: there was room for all", waits)
			}

			events := w.log.take()
			for _, event := range events {
				if !strings.HasSuffix(event, " next") {
					t.Errorf("waits %t: %s", waits, event)
				}
			}
			if len(events) != n {
				t.Errorf("waits %t: %d requests of %d were answered", waits, len(events), n)
			}
		})
	}
}

// Acknowledgements together that find no room for their jobs get a transaction of their own, so
// that others do not take the room again.
func TestAcknowledgementsThatFindNoRoom(t *testing.T) {
	const chains, each = 4, 10
	roomForTwo := func(o *Options) { o.Limits.LeaseRoom = 115_000 }
	inBubble(t, roomForTwo, func(w *waiting) {
		w.configure(func(s *fdbpq.Settings) { s.Keep = time.Hour })
		headers := map[string][]string{"H": {strings.Repeat("h", 2_000)}}
		for range chains * each {
			w.submit(nil, fdbpq.Op{
				Kind: fdbpq.OpPush, Queue: w.q.Target, Message: fdbpq.Message{Headers: headers},
			})
		}
		w.submitTogether(singly(slices.Repeat([]fdbpq.Op{w.lease()}, chains*each)), never)
		w.log.take()
		var requests [][]fdbpq.Op
		for chain := range chains {
			var ops []fdbpq.Op
			for lease := range each {
				ops = append(ops, w.settle(fdbpq.OpAck, chain*each+lease))
				ops[lease].Follows = lease > 0
			}
			requests = append(requests, ops)
		}

		w.takeTransactions()
		w.submitTogether(requests, never)

		w.wantTransactions(3, "the first two chains, and two alone")
		for _, event := range w.log.take() {
			if strings.Contains(event, "failed") {
				t.Error(event)
			}
		}
	})
}

// ErrNoRoom of a lease behind an acknowledgement says that the acknowledgement is done. If it is
// not, and the service ends before it is tried again, the request fails otherwise.
func TestNoRoomForAnAcknowledgementAtTheEnd(t *testing.T) {
	for _, waits := range []bool{false, true} {
		inBubble(t, nil, func(w *waiting) {
			l := w.d.lanes[0]
			ops := pops(w.lease(), 2)
			ops[0].Kind = fdbpq.OpAck
			results := []fdbpq.Result{{Err: fdbpq.ErrNoRoom}, {Err: fdbpq.ErrNoRoom}}

			l.mu.Lock()
			l.mu.ended = true
			l.mu.Unlock()
			w.n++
			w.log.submitted(w.n)
			r := &Request{Queue: w.q, Replier: number(w.log, w.n)}
			if waits {
				r.Wait = w.minute()
				l.applyResults(newWaiter(r, ops), ops, results, time.Now())
			} else {
				l.answerRequest(r, ops, results, time.Now())
			}
			w.want("at the end", fmt.Sprintf("%d: failed 2, unavailable", w.n))
			l.mu.Lock()
			l.mu.ended = false
			l.mu.Unlock()
		})
	}
}

// nextOf is a request that acknowledges leases together, in the order in which they were given, and
// leases n items.
func (w *waiting) nextOf(n int, leases ...int) (ops []fdbpq.Op) {
	for _, lease := range leases {
		ops = append(ops, w.settle(fdbpq.OpAck, lease))
	}

	ops = append(ops, pops(w.lease(), n)...)
	for i := range ops {
		ops[i].Follows = i > 0
	}

	return ops
}

// Of requests in one transaction that name the same lease, the first has it. The others change
// nothing, so the next one may have what they name besides.
func TestAcknowledgementsThatOverlap(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits %v", waits), func(t *testing.T) {
			withHeld(t, nil, func(w *waiting, db *heldDB) {
				for _, item := range []string{"a", "b", "c", "d", "e", "f"} {
					w.push(item)
				}

				w.submit(nil, pops(w.lease(), 4)...)
				w.want("four are leased", "7: a b c d")

				w.takeTransactions()
				w.while(db, func() { // 8
					var wait *Wait
					if waits {
						wait = w.minute()
					}

					w.submit(wait, w.nextOf(1, 0, 1)...)
					w.submit(wait, w.nextOf(1, 1, 2)...)
					w.submit(wait, w.nextOf(1, 0, 3)...)
					w.submit(wait, w.nextOf(1, 2, 3)...)
				})
				w.want("in one transaction", "9:   e", "10: lost", "11: lost", "12:   f")
				w.wantTransactions(2, "one of another queue and one")

				w.submit(nil, w.nextOf(1, 4, 5)...)
				w.want("the end", "13:   empty")
			})
		})
	}
}
