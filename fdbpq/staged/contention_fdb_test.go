//go:build fdb

package staged

import (
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

// BenchmarkContention pops from one queue with many clients at once, each with its own goroutine
// and transactions: with the bare recipe and with Poppers, in turns. It starts a private
// FoundationDB server. An iteration is a turn of each.
//
// It reports for both the pops per second and the median and 99th percentile of the time of a pop,
// and the ratios of the rates and of the medians.
//
//	go test -tags fdb -run '^$' -bench Contention -benchtime 3x ./fdbpq/staged
func BenchmarkContention(b *testing.B) {
	for _, storage := range []string{testenv.FDBSSD, testenv.FDBMemory} {
		b.Run(storage, func(b *testing.B) {
			file := testenv.StartFDB(b, storage).ClusterFile()
			db := must(fdbkv.Open(fdbkv.Options{ClusterFile: file}))
			b.Cleanup(func() { _ = db.Close() })
			space := tuple.NewSubspace(tuple.Tuple{"contest"})
			queue := fdbpq.NewPriorityQueue(space, fdbpq.RawValues)
			bare := openRecipe(b, file, space, false)

			for clients := 1; clients <= 256; clients *= 2 {
				b.Run(fmt.Sprint(clients), func(b *testing.B) {
					recipe := contestant{B: b, db: db, queue: queue}
					staged := contestant{B: b, db: db, queue: queue}

					for range clients {
						recipe.pops = append(recipe.pops, func() error {
							value, err := bare.pop(false)
							if err == nil && value == "" {
								err = fdbpq.ErrEmpty
							}

							return err
						})

						p := New(db, queue)
						staged.pops = append(staged.pops, func() error {
							_, err := p.PopMin(b.Context())
							return err
						})
					}

					for range b.N {
						recipe.turn()
						staged.turn()
					}

					rate, median := recipe.report("recipe")
					stagedRate, stagedMedian := staged.report("staged")
					b.ReportMetric(stagedRate/rate, "rate-ratio")
					b.ReportMetric(stagedMedian/median, "p50-ratio")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

const (
	contestTurn  = time.Second // how long one kind of clients pops
	contestItems = 10_000      // more than they pop in that time
)

// contestant is one of the two ways to pop.
type contestant struct {
	*testing.B
	db     kv.Database
	queue  *fdbpq.PriorityQueue
	pops   []func() error // of the clients
	mu     sync.Mutex
	times  []time.Duration // of all pops
	inTime atomic.Int64    // pops that ended within their turn
}

// turn has all clients pop for contestTurn. Pops that have begun by then end.
func (c *contestant) turn() {
	ops := make([]fdbpq.Op, 1000)
	for i := range ops {
		m := fdbpq.Message{Value: make([]byte, 128)}
		ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: c.queue, Priority: int64(i % 10), Message: m}
	}

	for first := 0; first < contestItems; first += len(ops) {
		err := kv.UpdateIdempotent(c.Context(), c.db, func(tx kv.Transaction) error {
			if first == 0 {
				c.queue.Clear(tx)
			}

			_, err := fdbpq.Apply(tx, ops, time.Now())
			return err
		})
		if err != nil {
			c.Fatal(err)
		}
	}

	var wg sync.WaitGroup
	start := time.Now()

	for _, pop := range c.pops {
		wg.Go(func() {
			for time.Since(start) < contestTurn {
				began := time.Now()
				if err := pop(); err != nil {
					c.Error(err)
					return
				}

				took := time.Since(began)
				if time.Since(start) < contestTurn {
					c.inTime.Add(1)
				}

				c.mu.Lock()
				c.times = append(c.times, took)
				c.mu.Unlock()
			}
		})
	}

	wg.Wait()
}

// report reports and returns the rate, and the median in milliseconds.
func (c *contestant) report(name string) (rate, median float64) {
	slices.Sort(c.times)
	percentile := func(p int) float64 { return c.times[len(c.times)*p/100].Seconds() * 1000 }
	rate, median = float64(c.inTime.Load())/(float64(c.N)*contestTurn.Seconds()), percentile(50)
	c.ReportMetric(rate, name+"/s")
	c.ReportMetric(median, name+"-p50-ms")
	c.ReportMetric(percentile(99), name+"-p99-ms")

	return rate, median
}
