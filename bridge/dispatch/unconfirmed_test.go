package dispatch

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// While too much is unconfirmed, no batch takes items: pops and leases wait, and so do requests
// behind them. They are answered in time all the same, and items that go back into queues are not
// held up.
func TestTooMuchUnconfirmed(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxUnconfirmed = 1000 }, func(w *waiting) {
		for _, value := range []string{"a", "b", "c"} {
			w.push(value) // 1 to 3
		}

		w.d.AddUnconfirmed(w.q, 1000)
		w.submit(nil, pop(w.q)) // 4
		w.want("just as much as may be unconfirmed", "4: a")

		w.d.AddUnconfirmed(w.q, 1)
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: w.q.Target}) // 5
		w.want("a peek takes nothing", "5: b")

		w.submit(nil, pop(w.q))                                       // 6
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: w.q.Target}) // 7
		w.submit(nil, w.lease())                                      // 8
		w.submit(until(time.Second), pop(w.q))                        // 9
		w.takeTransactions()

		w.want("too much is unconfirmed")
		w.wantTransactions(0, "while too much is unconfirmed")

		// An item goes back past all of them.
		item := fdbpq.Item{ID: fdbpq.ID{}, Message: fdbpq.Message{Value: []byte("back")}}
		restore := fdbpq.Op{Kind: fdbpq.OpRestore, Queue: w.q.Target, Item: &item}
		requeueUntilDone{w.d}.requeue(w.q, restore)
		w.want("an item that goes back")

		if n := w.takeTransactions(); n == 0 {
			t.Error("the item does not go back")
		}

		w.d.AddUnconfirmed(w.q, -1)
		w.want("no longer too much", "6: back", "8: b", "9: c")
	})
}

// Requests that are held back too long have not run, and those behind them go on.
func TestTooMuchUnconfirmedForLong(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxUnconfirmed = 1000 }, func(w *waiting) {
		w.park(pop(w.q)) // 1
		w.d.AddUnconfirmed(w.q, 1001)
		w.push("a")             // 2
		w.submit(nil, pop(w.q)) // 3

		w.want("too much is unconfirmed")

		time.Sleep(time.Second)
		w.push("b") // 4
		time.Sleep(w.d.options.RequestTimeout)

		w.want("after a while", "3: failed 1, unavailable")

		time.Sleep(time.Minute)
		w.want("the pop that waits", "1: empty")

		w.submit(nil, pop(w.q)) // 5
		w.stop()
		w.want("the end", "5: failed 1, unavailable")
	})
}

// While too much is unconfirmed, queues with few such bytes are served all the same, within bounds.
func TestOthersAreServedWhileTooMuchIsUnconfirmed(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.MaxUnconfirmed, o.MaxBatchBytes = 1<<20, 1<<20
	}, func(w *waiting) {
		other := getQueue(t, w.d.queues, subjects.Priority, "other")
		use := func(q *Queue) { w.q = q }
		large := w.q

		for range 2 {
			w.push("large") // 1, 3
			use(other)
			w.push("small") // 2, 4
			use(large)
		}

		w.d.AddUnconfirmed(large, 1<<20+1)
		w.submit(nil, pop(large)) // 5
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: large.Target})
		use(other)
		w.submit(nil, pop(other)) // 7

		w.want("too much of one queue", "7: small")

		w.d.AddUnconfirmed(other, 2<<20)
		w.submit(nil, pop(other)) // 8
		w.want("too much of both")

		w.d.AddUnconfirmed(other, -2<<20)
		w.want("too much of one again", "8: small")

		w.park(pop(other)) // 9
		w.push("more")     // 10
		w.want("a pop that waits", "9: more")

		w.d.AddUnconfirmed(large, -1)
		w.want("no longer too much", "5: large")

		use(large)
	})
}

// Neither requests for large items nor items that go back keep other queues waiting.
func TestLargeItemsLeaveRoom(t *testing.T) {
	const size, n = 1 << 20, 40
	for name, add := range map[string]func(d *Dispatcher, q *Queue) error{
		"pops": func(d *Dispatcher, q *Queue) error {
			return d.Submit(&Request{Queue: q, Received: time.Now()}, []fdbpq.Op{pop(q)})
		},
		"pushes": func(d *Dispatcher, q *Queue) error {
			return d.Submit(&Request{Queue: q, Received: time.Now(), Size: size},
				[]fdbpq.Op{push(q, "")})
		},
		"items that go back": func(d *Dispatcher, q *Queue) error {
			return d.Requeue(&Request{Queue: q, Received: time.Now(), Size: size},
				[]fdbpq.Op{{Kind: fdbpq.OpRestore, Queue: q.Target}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTest(t)
			l := d.lanes[0]
			large := getQueue(t, d.queues, subjects.Priority, "large")
			small := getQueue(t, d.queues, subjects.Priority, "small")
			large.itemSize.Store(size)
			small.itemSize.Store(1)

			for range n {
				must(t, add(d, large))
			}
			must(t, d.Submit(&Request{Queue: small, Received: time.Now()}, []fdbpq.Op{pop(small)}))

			operations, batches, at := 0, 0, 0 // at is the batch that has the small request
			for b := l.takeBatch(t.Context()); b != nil; b = l.takeBatch(t.Context()) {
				operations += len(b.ops)
				batches++
				for i := range b.requests {
					if b.requests[i].Queue == small {
						at = batches
					}
				}

				l.finishBatch(b)
			}
			if operations != n+1 || at == 0 || at > 3 || large.aside.Load() != 0 {
				t.Errorf("%d operations, the small one in batch %d, %d are aside", operations, at,
					large.aside.Load())
			}
		})
	}
}

// Items that go back into queues run before requests that came earlier.
func TestReturnsComeFirst(t *testing.T) {
	d := newTest(t)
	l, q := d.lanes[0], getQueue(t, d.queues, subjects.Priority, "jobs")

	for range 10 {
		must(t, d.Submit(&Request{Queue: q, Received: time.Now()}, []fdbpq.Op{pop(q)}))
	}
	restore := fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q.Target}
	must(t, d.Requeue(&Request{Queue: q, Received: time.Now()}, []fdbpq.Op{restore}))

	b := l.takeBatch(t.Context())
	if b.ops[0].Kind != fdbpq.OpRestore || len(b.ops) != 11 {
		t.Errorf("the first of %d operations is %v", len(b.ops), b.ops[0].Kind)
	}

	l.finishBatch(b)
}
