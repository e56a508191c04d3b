//go:build fdb

package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
)

// BenchmarkContention pops from one queue with many clients at once, each with its own
// goroutine and transactions: with the bare recipe, and with Poppers. It starts a private
// FoundationDB server.
//
// It reports pops per second, transactions and conflicts per pop, and the median and 99th
// percentile of the time of a pop.
//
//	go test -tags fdb -run '^$' -bench Contention -benchtime 5s ./fdbpq
func BenchmarkContention(b *testing.B) {
	for _, storage := range []testenv.FDBStorage{testenv.FDBSSD, testenv.FDBMemory} {
		b.Run(string(storage), func(b *testing.B) {
			file := testenv.StartFDB(b, storage).ClusterFile()
			for _, clients := range []int{1, 8, 64, 256} {
				for name, start := range map[string]func(*contest) func() error{"recipe": startRecipe, "popper": startPopper} {
					b.Run(fmt.Sprintf("%s/%d", name, clients), func(b *testing.B) {
						newContest(b, file).run(clients, start)
					})
				}
			}
		})
	}
}

// contest is many clients that pop from one queue.
type contest struct {
	*testing.B
	file  string
	db    *counted
	space tuple.Subspace
	queue *fdbpq.PriorityQueue
}

func newContest(b *testing.B, file string) *contest {
	db, err := fdbkv.Open(fdbkv.Options{ClusterFile: file})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	space := tuple.NewSubspace(tuple.Tuple{"contest"})
	c := &contest{B: b, file: file, db: &counted{Database: db}, space: space,
		queue: fdbpq.NewPriorityQueue(space, fdbpq.RawValues)}
	c.fill(b.N)
	return c
}

// fill makes a queue of n items of 128 bytes.
func (c *contest) fill(n int) {
	batcher := fdbpq.NewBatcher(c.db.Database, must(fdbpq.NewKeyspace("contest-pq", "contest-q", fdbpq.RawValues)))
	if err := kv.UpdateIdempotent(c.Context(), c.db.Database, func(tx kv.Transaction) error {
		c.queue.Clear(tx)
		return nil
	}); err != nil {
		c.Fatal(err)
	}
	ops := make([]fdbpq.Op, 0, 1000)
	for i := range n {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPush, Queue: c.queue, Priority: int64(i % 10), Message: fdbpq.Message{Value: make([]byte, 128)}})
		if len(ops) < cap(ops) && i < n-1 {
			continue
		}
		if _, err := batcher.Apply(c.Context(), ops); err != nil {
			c.Fatal(err)
		}
		ops = ops[:0]
	}
}

// startRecipe returns a client that pops as the recipe does.
func startRecipe(c *contest) func() error {
	r := openRecipe(c, c.file, c.space, false)
	return func() error {
		_, attempts, err := r.pop(false)
		c.db.begins.Add(int64(attempts))
		c.db.conflicts.Add(int64(attempts) - 1)
		return err
	}
}

// startPopper returns a client that pops with a Popper of its own.
func startPopper(c *contest) func() error {
	p := fdbpq.NewPopper(c.db, c.queue)
	return func() error {
		_, err := p.PopMin(c.Context())
		return err
	}
}

// run pops all items with the given number of clients.
func (c *contest) run(clients int, start func(*contest) func() error) {
	var left atomic.Int64
	left.Store(int64(c.N))
	times := make([][]time.Duration, clients)
	pops := make([]func() error, clients)
	for i := range clients {
		pops[i] = start(c)
	}
	var wg sync.WaitGroup
	c.ResetTimer()
	for i, pop := range pops {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := pop(); err != nil {
					c.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	c.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	c.ReportMetric(float64(c.N)/c.Elapsed().Seconds(), "pops/s")
	c.ReportMetric(float64(c.db.begins.Load())/float64(c.N), "transactions/pop")
	c.ReportMetric(float64(c.db.conflicts.Load())/float64(c.N), "conflicts/pop")
	c.ReportMetric(all[len(all)/2].Seconds()*1000, "p50-ms")
	c.ReportMetric(all[len(all)*99/100].Seconds()*1000, "p99-ms")
	c.ReportMetric(0, "ns/op")
}

// counted counts what happens in a store.
type counted struct {
	kv.Database
	begins, conflicts atomic.Int64
}

func (c *counted) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	c.begins.Add(1)
	tx, err := c.Database.Begin(ctx, o)
	return countedTransaction{tx, c}, err
}

type countedTransaction struct {
	kv.Transaction
	c *counted
}

func (tx countedTransaction) Commit() kv.Future[struct{}] {
	_, err := tx.Transaction.Commit().Get()
	if errors.Is(err, kv.ErrConflict) {
		tx.c.conflicts.Add(1)
	}
	return kv.Ready(struct{}{}, err)
}
