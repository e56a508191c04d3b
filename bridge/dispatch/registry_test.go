package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

func getQueue(t testing.TB, g *registry, kind subjects.Kind, name string) *Queue {
	q, err := g.get(kind, name)
	must(t, err)
	return q
}

// Concurrent callbacks of several subscriptions share one object for each queue.
func TestRegistryHasOneQueuePerName(t *testing.T) {
	g := newTest(t).queues
	var group sync.WaitGroup
	found := make([][]*Queue, 4)

	for n := range found {
		group.Go(func() {
			for i := range 2000 {
				found[n] = append(found[n],
					getQueue(t, g, subjects.Kind(i%2), fmt.Sprint("queue-", i/2)))
			}
		})
	}

	group.Wait()
	for i, q := range found[0] {
		if want := fmt.Sprint("queue-", i/2); q.Name != want || q.Kind != subjects.Kind(i%2) {
			t.Fatalf("%s of kind %v, want %s", q.Name, q.Kind, want)
		}
		for n := range found {
			if found[n][i] != q {
				t.Fatalf("two objects for %s", q.Name)
			}
		}
	}
}

// After a queue was forgotten for lack of room, the retirer goes through the list
// again, because nobody else would retire the queue.
func TestRetirerFindsEvictedNames(t *testing.T) {
	d := newTest(t)
	r := &retirer{d: d.shared}

	listed := func() int {
		t.Helper()
		names, err := kv.ReadTransact(t.Context(), d.options.DB,
			func(reader kv.Reader) ([]string, error) {
				return d.options.Keyspace.PriorityQueues(reader, "", 0).Get()
			})
		must(t, err)
		return len(names)
	}

	batcher := fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)
	for i := range 3 {
		q := getQueue(t, d.queues, subjects.Priority, fmt.Sprint("jobs-", i))
		for _, kind := range []fdbpq.OpKind{fdbpq.OpPush, fdbpq.OpPop} {
			_, err := batcher.Apply(t.Context(), []fdbpq.Op{{Kind: kind, Queue: q.Target}})
			must(t, err)
		}
	}

	for i := range d.queues.shards {
		clear(d.queues.shards[i].queues)
	}

	rounds := func(n int) {
		t.Helper()
		for range n {
			must(t, r.runRound(t.Context()))
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

// The number of queues is limited. Queues in use and queues with waiters stay.
func TestRegistryIsBounded(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		g := w.d.queues
		w.park(pop(w.q))
		r := &retirer{d: w.d.shared}

		for range 4 {
			must(w.t, r.runRound(w.t.Context()))
		}

		busy := getQueue(t, g, subjects.Priority, "busy")
		for i := range 2 * maxQueues {
			if i%1000 == 0 {
				g.round.Add(1)
				if getQueue(t, g, subjects.Priority, "busy") != busy {
					t.Fatalf("a queue in use was forgotten for the %dth", i)
				}
			}
			getQueue(t, g, subjects.Priority, fmt.Sprint(i))
		}

		n := 0
		for i := range g.shards {
			n += len(g.shards[i].queues)
		}
		if n > maxQueues || !g.evicted.Load() {
			t.Errorf("%d queues, want at most %d; evicted %v", n, maxQueues, g.evicted.Load())
		}
		if getQueue(t, g, subjects.Priority, "jobs") != w.q {
			t.Error("a queue with a waiter was forgotten")
		}

		w.push("x")
		w.want("a push", "1: x")
	})
}

// lateReads is a store whose reads of a key take a moment each, and fail once the time of their
// transaction is over.
type lateReads struct {
	kv.Database
	takes time.Duration
}

type lateRead struct {
	kv.ReadTransaction
	ctx   context.Context
	takes time.Duration
}

func (s lateReads) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := s.Database.BeginRead(ctx)
	return lateRead{tx, ctx, s.takes}, err
}

func (r lateRead) Get(key []byte) kv.Future[[]byte] {
	if time.Sleep(r.takes); r.ctx.Err() != nil {
		return kv.Ready[[]byte](nil, r.ctx.Err())
	}
	return r.ReadTransaction.Get(key)
}

// A round of the retirer goes on where the machine is too busy for a whole page of the list.
func TestRetirerTriesSlowPagesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 150
		d := newTest(t)
		batcher := fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)
		for i := range n {
			q := getQueue(t, d.queues, subjects.Priority, fmt.Sprint("jobs-", i))
			for _, kind := range []fdbpq.OpKind{fdbpq.OpPush, fdbpq.OpPop} {
				_, err := batcher.Apply(t.Context(), []fdbpq.Op{{Kind: kind, Queue: q.Target}})
				must(t, err)
			}
		}
		for i := range d.queues.shards {
			clear(d.queues.shards[i].queues)
		}
		d.queues.evicted.Store(true)
		d.options.DB = lateReads{d.options.DB, 2 * d.options.RequestTimeout / n}

		r := &retirer{d: d.shared}
		for range listPasses {
			must(t, r.runRound(t.Context()))
		}

		names, err := kv.ReadTransact(t.Context(), d.options.DB,
			func(reader kv.Reader) ([]string, error) {
				return d.options.Keyspace.PriorityQueues(reader, "", 0).Get()
			})
		must(t, err)
		if len(names) > 0 {
			t.Errorf("%d of %d unused queues are still listed", len(names), n)
		}
	})
}
