package bridge_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/testenv"
)

// The lengths of all queues are read in two round trips to the store: the names of both
// kinds, then all lengths. Read one by one, they would take too long.
func TestLengthsAreReadTogether(t *testing.T) {
	const queues = 100
	var store *countkv.DB
	e := testenv.New(t, testenv.Options{Wrap: func(db kv.Database) kv.Database {
		store = countkv.New(db)
		return store
	}})
	var pushes []fdbpq.Op
	for i := range queues {
		name := fmt.Sprintf("queue-%d", i)
		priority, err := e.Keyspace.PriorityQueue(name)
		if err != nil {
			t.Fatal(err)
		}
		fifo, err := e.Keyspace.Queue(name)
		if err != nil {
			t.Fatal(err)
		}
		pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: priority}, fdbpq.Op{Kind: fdbpq.OpPush, Queue: fifo})
	}
	if _, err := fdbpq.NewBatcher(e.DB, e.Keyspace).Apply(t.Context(), pushes); err != nil {
		t.Fatal(err)
	}
	store.Take()
	wantMetric(t, e.Bridge, `pq_queue_length{kind="fifo",queue="queue-7"}`, 1)
	want := countkv.Cost{Reads: 2 + 2*queues, Rounds: 2}
	if costs := store.Take(); !slices.Contains(costs, want) {
		t.Errorf("costs %+v: want one of them to be %+v", costs, want)
	}
}
