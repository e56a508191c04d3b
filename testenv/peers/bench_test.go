package peers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	rounds      = flag.Int("rounds", 3, "how often the queues take turns")
	backlog     = flag.Int("backlog", 0, "items in each queue, besides those that a turn takes")
	clients     = flag.Int("clients", 128, "clients, each with one request under way")
	connections = flag.Int("connections", 4, "connections that they share")
	priorities  = flag.Int("priorities", 10, "different priorities")
	size        = flag.Int("size", 128, "bytes of an item")
)

// many is the number of items in a request of those for many.
const many = 100

// BenchmarkQueues has all queues that are installed take turns at each operation. Rates are of
// items, quantiles of requests.
func BenchmarkQueues(b *testing.B) {
	var all []*contender
	for _, p := range peers() {
		if p.Missing != "" {
			b.Logf("without %s: %s", p.Name, p.Missing)
			continue
		}

		server := p.Start(b, folder(b))
		connected := server.Connect(*clients, *connections, *priorities)
		all = append(all, &contender{Peer: p, clients: connected})
	}

	for round := range *rounds {
		for _, operation := range operations {
			for _, c := range all {
				if c.does(operation) {
					name := fmt.Sprintf("round=%d/op=%s/queue=%s", round, operation, c.Name)
					b.Run(name, func(b *testing.B) { c.benchmark(b, operation) })
				}
			}
		}
	}
}

// contender is a queue of a peer.
type contender struct {
	Peer
	clients []*Client
	queued  int // items
}

// benchmark does an operation with b.N items, more or less: requests for many have all of them.
func (c *contender) benchmark(b *testing.B, operation string) {
	each := 1
	if strings.HasSuffix(operation, "_100") {
		each = many
	}

	steps := (b.N + each - 1) / each
	if !strings.HasPrefix(operation, Push) {
		c.fill(b, *backlog+(steps+2*len(c.clients))*each) // some are sent to clients that are done
	}

	b.ResetTimer()
	latencies, elapsed := c.do(b, operation, steps, each)
	b.StopTimer()

	if len(latencies) < steps {
		b.Fatalf("%s: the queue was empty after %d of %d requests", c.Name, len(latencies), steps)
	}

	b.ReportMetric(0, "ns/op") // it is not the latency of anything
	b.ReportMetric(float64(steps*each)/elapsed.Seconds(), "items/s")
	slices.Sort(latencies)

	for _, q := range []int{50, 99} {
		b.ReportMetric(latencies[len(latencies)*q/100].Seconds()*1e3, fmt.Sprintf("p%d-ms", q))
	}

	c.drain(b, *backlog)
}

// fill pushes until the queue has n items.
func (c *contender) fill(b *testing.B, n int) {
	missing := n - c.queued
	operation, each := PushMany, many

	if !c.does(PushMany) {
		operation, each = Push, 1
	}

	if missing > 0 {
		c.do(b, operation, (missing+each-1)/each, each)
	}
}

// drain takes items until the queue has n.
func (c *contender) drain(b *testing.B, n int) {
	operation, each := Work, 1
	for _, faster := range []string{WorkMany, PopMany} {
		if c.does(faster) {
			operation, each = faster, many
		}
	}

	if more := c.queued - n; more >= each {
		c.do(b, operation, more/each, each)
	}
}

// do has the clients do an operation, each step with that many items, and returns how long each
// step and all of them took. A client whose queue is empty is done.
func (c *contender) do(b *testing.B, operation string,
	steps, each int) (latencies []time.Duration, elapsed time.Duration) {
	var started, items atomic.Int64
	var mu sync.Mutex
	var running sync.WaitGroup
	began := time.Now()

	for _, client := range c.clients {
		running.Go(func() {
			var took []time.Duration
			for started.Add(1) <= int64(steps) {
				began := time.Now()
				n, err := step(b.Context(), client, operation, each)
				if err != nil {
					if !errors.Is(err, ErrEmpty) {
						b.Errorf("%s: %s: %v", c.Name, operation, err)
					}
					break
				}

				items.Add(int64(n))
				took = append(took, time.Since(began))
			}

			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, took...)
		})
	}

	running.Wait()
	elapsed = time.Since(began)

	for _, client := range c.clients {
		if client.Rest != nil {
			must(b, client.Rest())
		}
	}

	if strings.HasPrefix(operation, Push) {
		c.queued += int(items.Load())
	} else {
		c.queued -= int(items.Load())
	}

	return latencies, elapsed
}

var pushed atomic.Int64

// step does one step of a client, and returns with how many items.
func step(ctx context.Context, c *Client, operation string, n int) (int, error) {
	var done [][]byte
	var err error

	operation, shared := strings.CutSuffix(operation, "_shared")
	if shared {
		c = c.Shared
	}

	switch operation {
	case Push, PushMany:
		items := make([]Item, n)
		for i := range items {
			items[i] = Item{Priority: int(pushed.Add(1)) % *priorities, Value: make([]byte, *size)}
		}

		return n, c.Push(ctx, items)
	case Pop, PopMany:
		done, err = c.Pop(ctx, n)
	default:
		done, err = c.Work(ctx, n)
	}

	return len(done), err
}
