package dispatch

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// While too much is kept, no batch takes items: pops and leases wait, and those behind them. They are answered in time
// all the same, and what goes back into queues is not held up.
func TestTooMuchIsKept(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxKept = 1000 }, func(w *waiting) {
		for _, value := range []string{"a", "b", "c"} {
			w.push(value) // 1 to 3
		}
		w.d.Keep(1000)
		w.submit(nil, pop(w.q)) // 4
		w.want("just as much as may be kept", "4: a")

		w.d.Keep(1)
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: w.q.Target}) // 5
		w.want("a peek takes nothing", "5: b")
		w.submit(nil, pop(w.q))                                                                             // 6
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLen, Queue: w.q.Target})                                       // 7
		w.submit(nil, fdbpq.Op{Kind: fdbpq.OpLease, Queue: w.q.Target, Lease: time.Minute})                 // 8
		w.submit(&Wait{Until: time.Now().Add(time.Second)}, fdbpq.Op{Kind: fdbpq.OpPop, Queue: w.q.Target}) // 9
		w.transactions()
		w.want("too much is kept")
		if n := w.transactions(); n != 0 {
			t.Errorf("%d transactions while too much is kept", n)
		}

		// An item goes back past all of them.
		item := fdbpq.Item{ID: fdbpq.ID{}, Message: fdbpq.Message{Value: []byte("back")}}
		requeueUntilDone{w.d}.requeue(w.q, fdbpq.Op{Kind: fdbpq.OpRestore, Queue: w.q.Target, Item: &item})
		w.want("an item that goes back")
		if n := w.transactions(); n == 0 {
			t.Error("the item does not go back")
		}
		w.d.Keep(-1)
		w.want("no longer too much", "6: back", "8: b", "9: c")
	})
}

// Requests that are held back too long have not run, and those behind them go on.
func TestTooMuchIsKeptForLong(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxKept = 1000 }, func(w *waiting) {
		w.park(pop(w.q)) // 1
		w.d.Keep(1001)
		w.push("a")             // 2
		w.submit(nil, pop(w.q)) // 3
		w.want("too much is kept")
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

// What goes back into queues runs before what was there already.
func TestReturnsComeFirst(t *testing.T) {
	d := newTest(t)
	l, q := d.lanes[0], getQueue(t, d.queues, subjects.Priority, "jobs")
	for range 10 {
		if err := l.submit(&Request{Queue: q, Received: time.Now()}, []fdbpq.Op{pop(q)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Requeue(&Request{Queue: q, Received: time.Now()}, []fdbpq.Op{{Kind: fdbpq.OpRestore, Queue: q.Target}}); err != nil {
		t.Fatal(err)
	}
	b := l.takeBatch(t.Context())
	if b.ops[0].Kind != fdbpq.OpRestore || len(b.ops) != 11 {
		t.Errorf("the first of %d operations is %v", len(b.ops), b.ops[0].Kind)
	}
	l.finishBatch(b)
}
