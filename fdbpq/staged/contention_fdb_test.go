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

// BenchmarkContention pops from one queue with many clients at once, each with its own
// goroutine and transactions: with the bare recipe and with Poppers, in turns. It starts a
// private FoundationDB server.
//
// It reports for both the pops per second and the median and 99th percentile of the time of a
// pop, and the ratios of the rates and of the medians.
//
//	go test -tags fdb -run '^$' -bench Contention -benchtime 3x ./fdbpq/staged
//
// An iteration is a turn of each.
func BenchmarkContention(b *testing.B) {
	for _, storage := range []testenv.FDBStorage{testenv.FDBSSD, testenv.FDBMemory} {
		b.Run(string(storage), func(b *testing.B) {
			file := testenv.StartFDB(b, storage).ClusterFile()
			for _, clients := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256} {
				b.Run(fmt.Sprint(clients), func(b *testing.B) { newContest(b, file).run(clients) })
			}
		})
	}
}

const (
	// contestTurn is how long one kind of clients pops.
	contestTurn = time.Second
	// contestItems is more than they pop in that time.
	contestItems = 10_000
)

// contest is many clients that pop from one queue.
type contest struct {
	*testing.B
	file  string
	db    kv.Database
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
	return &contest{B: b, file: file, db: db, space: space,
		queue: fdbpq.NewPriorityQueue(space, fdbpq.RawValues)}
}

// fill makes a queue of n items of 128 bytes, n a multiple of 1000.
func (c *contest) fill(n int) {
	for first := 0; first < n; first += 1000 {
		err := kv.UpdateIdempotent(c.Context(), c.db, func(tx kv.Transaction) error {
			if first == 0 {
				c.queue.Clear(tx)
			}
			ops := make([]fdbpq.Op, 1000)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: c.queue, Priority: int64(i % 10), Message: fdbpq.Message{Value: make([]byte, 128)}}
			}
			_, err := fdbpq.Apply(tx, ops, time.Now())
			return err
		})
		if err != nil {
			c.Fatal(err)
		}
	}
}

// contestant is one of the two ways to pop.
type contestant struct {
	name    string
	clients []func() error
	times   []time.Duration // of all pops
	inTime  int             // pops that ended within their turn
	turns   int
}

// recipeClients pop as the recipe does.
func (c *contest) recipeClients(n int) *contestant {
	r := openRecipe(c, c.file, c.space, false)
	pop := func() error {
		value, err := r.pop(false)
		if err == nil && value == "" {
			err = fdbpq.ErrEmpty
		}
		return err
	}
	return &contestant{name: "recipe", clients: slices.Repeat([]func() error{pop}, n)}
}

// stagedClients pop with Poppers of their own.
func (c *contest) stagedClients(n int) *contestant {
	s := &contestant{name: "staged"}
	for range n {
		p := New(c.db, c.queue)
		s.clients = append(s.clients, func() error {
			_, err := p.PopMin(c.Context())
			return err
		})
	}
	return s
}

// turn has all clients pop for contestTurn. Pops that have begun by then end.
func (c *contest) turn(who *contestant) {
	c.fill(contestItems)
	times := make([][]time.Duration, len(who.clients))
	var inTime atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i, pop := range who.clients {
		wg.Go(func() {
			for time.Since(start) < contestTurn {
				began := time.Now()
				if err := pop(); err != nil {
					c.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(began))
				if time.Since(start) < contestTurn {
					inTime.Add(1)
				}
			}
		})
	}
	wg.Wait()
	who.turns++
	who.inTime += int(inTime.Load())
	who.times = append(who.times, slices.Concat(times...)...)
}

func (who *contestant) rate() float64 {
	return float64(who.inTime) / (float64(who.turns) * contestTurn.Seconds())
}

// percentile returns the time that p of 100 pops took at most, in milliseconds.
func (who *contestant) percentile(p int) float64 {
	slices.Sort(who.times)
	return who.times[len(who.times)*p/100].Seconds() * 1000
}

// run has both kinds of clients pop, in turns.
func (c *contest) run(clients int) {
	recipe, staged := c.recipeClients(clients), c.stagedClients(clients)
	for range c.N {
		c.turn(recipe)
		c.turn(staged)
	}
	for _, who := range []*contestant{recipe, staged} {
		c.ReportMetric(who.rate(), who.name+"/s")
		c.ReportMetric(who.percentile(50), who.name+"-p50-ms")
		c.ReportMetric(who.percentile(99), who.name+"-p99-ms")
	}
	c.ReportMetric(staged.rate()/recipe.rate(), "rate-ratio")
	c.ReportMetric(staged.percentile(50)/recipe.percentile(50), "p50-ratio")
	c.ReportMetric(0, "ns/op")
}
