package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Pops that wait are served in the order in which they came, whichever end they wait at, by the
// transaction of the push. A pop that does not wait gets nothing before them.
func TestWaitersAreServedInOrder(t *testing.T) {
	withHeld(t, nil, func(w *waiting, db *heldDB) {
		w.park(w.pops(fdbpq.Back, 1)...)  // 1
		w.park(w.pops(fdbpq.Front, 1)...) // 2
		w.park(w.pops(fdbpq.Back, 2)...)  // 3

		w.want("nothing is there")

		w.submit(nil, pop(w.q)) // 4
		w.want("a pop that does not wait", "4: empty")

		w.takeTransactions()
		w.submit(nil, push(w.q, "a"), push(w.q, "b")) // 5
		w.want("two items", "1: b", "2: a")
		w.wantTransactions(1, "for the pushes and the pops")

		// While the store is held by request 6, the others come into one batch.
		w.while(db, func() {
			w.submit(nil, push(w.q, "c"))  // 7
			w.submit(nil, pop(w.q))        // 8
			w.submit(w.minute(), pop(w.q)) // 9
			w.submit(nil, push(w.q, "d"))  // 10
		})
		w.want("a pop between the pushes", "3: d c", "8: empty")

		w.push("e")
		w.want("the last", "9: e")
	})
}

// A limit of bytes is for the whole request: it ends with the item that fills it, or before one
// that does not fit, which goes to the next request.
func TestWaiterWithMaxBytes(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		limited := pop(w.q)
		limited.MaxBytes = 10
		w.park(pops(limited, 5)...) // 1
		w.park(pop(w.q))            // 2
		w.push("12345")
		w.push("6789")
		w.push("xy")

		w.want("the third does not fit", "1: part 12345", "1: part 6789", "1: too large", "2: xy")

		w.park(pops(limited, 5)...) // 6
		w.park(pops(limited, 1)...) // 7
		w.submit(nil, push(w.q, "1234567890"))

		w.want("the first fills it", "6: 1234567890 too large")

		w.submit(nil, push(w.q, "too long for it"))
		w.submit(nil, pop(w.q)) // 10
		w.want("it does not fit alone", "7: too large", "10: too long for it")
	})
}

// A pop that waits gets an item the moment it falls due: when its lease or its delay ends, or at
// the time of its push. Until then there are no transactions.
func TestWaiterGetsWhatFallsDue(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: 10 * time.Second}
		w.push("a")
		w.submit(nil, lease)

		w.want("leased", "2: a")

		w.park(pop(w.q)) // 3
		w.park(lease)    // 4
		w.push("b")

		w.want("pushed", "3: b")

		w.takeTransactions()
		time.Sleep(10*time.Second - time.Millisecond)
		w.want("just before")
		w.wantTransactions(0, "while nothing happens")

		time.Sleep(time.Millisecond)
		w.want("the lease is over", "4: a")

		// A nak with a delay, and one without.
		w.park(pop(w.q)) // 6
		nak := fdbpq.Op{
			Kind:  fdbpq.OpNak,
			Queue: w.q.Target,
			Token: w.log.mu.tokens[1],
			Delay: 3 * time.Second,
		}

		w.submit(nil, nak) // 7
		w.want("a nak with a delay")

		time.Sleep(3*time.Second - time.Millisecond)
		w.want("just before")

		time.Sleep(time.Millisecond)
		w.want("the delay is over", "6: a")

		w.push("c")
		w.submit(nil, lease)
		w.want("leased", "9: c")

		w.park(w.pops(fdbpq.Back, 1)...) // 10
		nak.Token, nak.Delay = w.log.mu.tokens[2], 0
		w.takeTransactions()
		w.submit(nil, nak)

		w.want("a nak without delay", "10: c")
		w.wantTransactions(1, "for both")

		// A push with a time of its own, which may be over.
		w.park(pop(w.q)) // 12
		w.park(pop(w.q)) // 13
		later, past := push(w.q, "d"), push(w.q, "e")
		later.At, past.At = time.Now().Add(3*time.Second), time.Now().Add(-time.Hour)
		w.submit(nil, later)
		w.submit(nil, past)

		w.want("its time is over", "12: e")

		time.Sleep(3*time.Second - time.Millisecond)
		w.want("just before")

		time.Sleep(time.Millisecond)
		w.want("at its time", "13: d")
	})
}

// An acknowledgement that asks for the next item commits at once, alone or behind a pop. Then the
// request waits, for a lease as long as the first.
func TestAckThatWaitsForTheNext(t *testing.T) {
	for _, alone := range []bool{true, false} {
		inBubble(t, nil, func(w *waiting) {
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: 10 * time.Second}
			next := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Follows: true}
			w.push("a")
			w.submit(nil, lease)

			w.want("leased", "2: a")

			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: w.q.Target, Token: w.log.mu.tokens[0]}
			if !alone {
				w.submit(&Wait{Until: time.Now().Add(time.Second)}, pop(w.q))
			}

			synctest.Wait()
			until := time.Now().Add(5 * time.Second)
			w.submit(&Wait{Until: until}, ack, next, next)

			w.want("it waits")

			w.submit(&Wait{Until: until}, ack, next)
			if alone {
				w.want("again", "4: lost")
			} else {
				w.want("again", "5: lost")

				time.Sleep(2 * time.Second)
				w.want("the first in line", "3: empty")

				w.submit(nil, ack, next)
				w.want("without waiting", "6: lost")
			}

			// The request that waits leases "b", which comes back after 10 s.
			before := w.d.Waiters()
			w.push("b")
			w.log.take()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			w.log.take()

			if before != 1 || len(w.log.mu.tokens) != 2 {
				t.Fatalf("%d waiters, %d leases", before, len(w.log.mu.tokens))
			}

			w.submit(nil, pop(w.q))
			synctest.Wait()

			got := w.log.take()
			if len(got) != 1 || got[0][len("n: "):] != "b" {
				t.Errorf("after the second lease: %q", got)
			}
		})
	}
}

// Close ends waiting requests at once, runs the others, and refuses later ones.
func TestCloseEndsWaiters(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.park(w.pops(fdbpq.Front, 2)...) // 1
		w.push("a")
		w.park(pop(w.q))        // 3
		w.submit(nil, pop(w.q)) // 4
		began := time.Now()
		w.stop()
		synctest.Wait()
		got := w.log.take()
		slices.Sort(got)

		failed := ": failed 1, unavailable"
		if !slices.Equal(got, []string{"1" + failed, "1: part a", "3" + failed, "4: empty"}) {
			t.Errorf("got %q", got)
		}

		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}

		r := &Request{Queue: w.q, Replier: w.log, Wait: w.minute()}
		err := w.d.Submit(r, w.pops(fdbpq.Front, 1))
		if !errors.Is(err, ErrUnavailable) || w.d.Waiters() != 0 {
			t.Errorf("after Close: %v, %d waiters", err, w.d.Waiters())
		}
	})
}

// The number of waiters is limited, and each that is served makes room for another.
func TestMaxWaiters(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxWaiters = 2 }, func(w *waiting) {
		w.park(pop(w.q))
		w.park(pop(w.q))
		r := &Request{Queue: w.q, Replier: w.log, Wait: w.minute()}

		err := w.d.Submit(r, w.pops(fdbpq.Front, 1))
		if !errors.Is(err, ErrTooManyWaiters) || !errors.Is(err, ErrOverloaded) {
			t.Errorf("the third: %v", err)
		}

		w.push("a")
		w.want("one is served", "1: a")

		w.park(pop(w.q))
		w.push("b")
		w.push("c")

		w.want("the others", "2: b", "4: c")
	})
}

// Waits is called for each request that begins to wait. Filled is called once a batch for each
// queue that may have more items, now or later.
func TestWaitingAndFilled(t *testing.T) {
	var log []string
	configure := func(o *Options) {
		o.Waits = func() { log = append(log, "waits") }
		o.Filled = func(q *Queue) { log = append(log, "filled "+q.Name) }
	}

	inBubble(t, configure, func(w *waiting) {
		want := func(what string, events ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(log)
			if !slices.Equal(log, events) {
				t.Errorf("%s: got %q, want %q", what, log, events)
			}

			log = nil
		}

		w.park(pop(w.q))
		want("the first waiter", "waits")

		w.park(pop(w.q))
		want("the second", "waits")

		w.push("a")
		want("a push", "filled jobs")

		w.submit(nil, push(w.q, "b"), push(w.q, "c"))
		want("two pushes", "filled jobs")

		w.submit(w.minute(), fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Second})
		want("a lease", "filled jobs", "waits")

		w.submit(nil, fdbpq.Op{
			Kind:  fdbpq.OpNak,
			Queue: w.q.Target,
			Token: w.log.mu.tokens[0],
			Delay: 2 * time.Second,
		})
		want("a nak", "filled jobs")

		w.submit(nil, pop(w.q))
		want("a pop")

		delayed := push(w.q, "d")
		delayed.Delay = time.Second
		w.submit(nil, delayed)

		want("a push with a delay", "filled jobs")

		other := getQueue(t, w.d.queues, subjects.Priority, "mail")
		w.inOneBatch(func() {
			for range 3 {
				w.add(w.q, nil, push(w.q, "x"))
				w.add(other, nil, push(other, "x"))
			}
		})
		want("pushes to two queues in turn", "filled jobs", "filled mail")
	})
}

// A queue's line of waiters that was ready to be tried, but found no room in the batch, is still
// served by the next push.
func TestReadyLineThatWasServed(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxBatch = 3 }, func(w *waiting) {
		other := getQueue(t, w.d.queues, subjects.Priority, "mail")
		w.park(pop(w.q)) // 1
		w.q, other = other, w.q
		w.park(pop(w.q)) // 2, for "mail"
		l := w.d.lanes[0]

		w.inOneBatch(func() { // for one batch, which has room to look at one line
			l.wakeLineLocked(l.lineLocked(other), wakeBudget)
			l.wakeLineLocked(l.lineLocked(w.q), wakeBudget)
			w.add(w.q, nil,
				fdbpq.Op{Kind: fdbpq.OpNak, Queue: w.q.Target, Token: fdbpq.Token{Fence: 1}})
		})
		w.want("a token that is no longer valid", "3: lost")

		w.push("a")
		w.want("a push", "2: a")

		w.q = other
		w.push("b")
		w.want("a push to the other queue", "1: b")
	})
}

// Wake and polling find items of other programs for the pops that wait. A waiting pop costs one
// transaction each time it polls, and none without polling.
func TestItemsOfOthers(t *testing.T) {
	for _, polls := range []bool{true, false} {
		inBubble(t, func(o *Options) {
			if polls {
				o.PollEvery = time.Second
			}
		}, func(w *waiting) {
			w.park(w.pops(fdbpq.Front, 40)...) // 1
			w.park(pop(w.q))                   // 2
			w.pushElsewhere(slices.Repeat([]string{"x"}, 41)...)

			w.want("nobody has looked")

			if polls {
				time.Sleep(time.Second)
			} else {
				w.d.Wake(w.q)
			}

			synctest.Wait()
			if w.d.Waiters() != 0 {
				t.Errorf("%d still wait: %q", w.d.Waiters(), w.log.take())
			}

			w.park(pop(w.q))
			synctest.Wait()
			w.takeTransactions()
			time.Sleep(5 * time.Second)
			synctest.Wait()

			want := 0
			if polls {
				want = 5 // one a second
			}
			if n := w.takeTransactions(); n != want {
				t.Errorf("polls %v: %d transactions in 5 s, want %d", polls, n, want)
			}
		})
	}
}

// Polling many empty queues takes few transactions, even if items have been large, and finds an
// item in any of them.
func TestPollOfManyQueues(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.PollEvery = time.Second
		o.MaxWaiters = 2000
	}, func(w *waiting) {
		// A large item has come and gone: requests 1 and 2.
		w.push(strings.Repeat("x", 1<<20))
		w.submit(nil, pop(w.q))
		synctest.Wait()
		w.log.take()

		const queues = 1000
		for i := range queues {
			w.q = getQueue(t, w.d.queues, subjects.Priority, fmt.Sprint("queue", i))
			w.submit(w.minute(), pop(w.q))
		}

		synctest.Wait()
		w.takeTransactions()
		time.Sleep(time.Second)

		w.want("nothing is there")
		if n := w.takeTransactions(); n > 5 {
			t.Errorf("%d transactions to look at %d queues", n, queues)
		}

		w.pushElsewhere("a")
		time.Sleep(time.Second)
		w.want("the last queue has an item", "1002: a")
	})
}

// Requests that share credits get no more items than there are credits, end when their time is
// over, and hold up no requests without credits.
func TestCredits(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		credits := NewCredits(2)
		lease := func(n int, until time.Duration) {
			op := fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour}
			w.submit(&Wait{Until: time.Now().Add(until), Credits: credits}, pops(op, n)...)
			synctest.Wait()
		}

		w.pushElsewhere("a", "b", "c", "d")
		lease(3, time.Minute)
		w.want("as many as there are credits", "1: part a b")

		lease(1, time.Second)
		w.submit(nil, pop(w.q))
		w.want("past those without", "3: c")

		time.Sleep(time.Second)
		w.want("in time", "2: empty")

		w.d.AddCredits(w.q, credits, 1)
		w.want("one more", "1: d")

		// Credits of an attempt that found too little are back.
		w.d.AddCredits(w.q, credits, 1)
		lease(1, time.Minute)
		w.push("e")

		w.want("the last", "4: e")

		// Two that come together share the last one.
		w.d.AddCredits(w.q, credits, 1)
		w.inOneBatch(func() {
			for range 2 {
				w.add(w.q, &Wait{Until: time.Now().Add(time.Minute), Credits: credits},
					fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Hour})
			}
			w.add(w.q, nil, push(w.q, "f"), push(w.q, "g"))
		})
		w.want("one of two", "6: f")

		w.submit(nil, pop(w.q))
		w.want("past the other", "9: g")
	})
}

// A lazy request runs with the next request that is not lazy, or after a moment, or once there are
// many of them.
func TestLazy(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		lazy := func() {
			r := &Request{
				Queue:    w.q,
				Replier:  number(w.log, 0),
				Received: time.Now(),
				Lazy:     true,
			}
			must(t, w.d.Submit(r, []fdbpq.Op{{Kind: fdbpq.OpLen, Queue: w.q.Target}}))
			synctest.Wait()
		}

		lazy()
		w.wantTransactions(0, "at first")

		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: w.q.Target})
		synctest.Wait()
		w.wantTransactions(1, "with another")

		lazy()
		time.Sleep(lazyTime)
		synctest.Wait()

		w.wantTransactions(1, "after a moment")

		for range maxLazy - 1 {
			lazy()
		}
		w.wantTransactions(0, "for few")

		lazy()
		w.wantTransactions(1, "for many")
	})
}
