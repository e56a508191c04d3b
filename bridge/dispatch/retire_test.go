package dispatch

import (
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// After a queue was forgotten for lack of room, the retirer goes through the list
// again, because nobody else would retire the queue.
func TestRetirerFindsEvictedNames(t *testing.T) {
	d := newTest(t)
	r := d.NewRetirer(false)
	listed := func() int {
		t.Helper()
		names, err := kv.ReadTransact(t.Context(), d.options.DB, func(reader kv.Reader) ([]string, error) {
			return d.options.Keyspace.PriorityQueues(reader, "", 0).Get()
		})
		must(t, err)
		return len(names)
	}
	batcher := fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)
	for i := range 3 {
		q := getQueue(t, d.queues, subjects.Priority, fmt.Sprint("jobs-", i))
		for _, kind := range []fdbpq.OpKind{fdbpq.OpPush, fdbpq.OpPop} {
			if _, err := batcher.Apply(t.Context(), []fdbpq.Op{{Kind: kind, Queue: q.Target}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range d.queues.shards {
		clear(d.queues.shards[i].queues)
	}
	rounds := func(n int) {
		t.Helper()
		for range n {
			must(t, r.Round(t.Context()))
		}
	}
	if rounds(4); listed() != 3 {
		t.Fatalf("%d queues are listed, want all 3: nothing was evicted", listed())
	}
	d.queues.evicted.Store(true)
	if rounds(2); listed() != 0 {
		t.Errorf("%d queues are still listed", listed())
	}
}

// A queue with waiters stays in memory, however long nobody else uses it and however many
// names come.
func TestQueuesWithWaitersStay(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.park(pop(w.q))
		r := w.d.NewRetirer(false)
		for range 4 {
			must(w.t, r.Round(w.t.Context()))
		}
		for i := range 2 * maxQueues {
			getQueue(w.t, w.d.queues, subjects.Priority, fmt.Sprint(i))
		}
		if getQueue(w.t, w.d.queues, subjects.Priority, "jobs") != w.q {
			w.t.Error("the queue was forgotten")
		}
		w.push("x")
		w.want("a push", "1: x")
	})
}
