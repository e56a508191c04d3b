package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// extent is how much there is of everything while an operation is measured.
type extent struct {
	queues, groups int
	items          int  // ready in all queues together; at least one for each queue and group
	pushes         bool // what is measured is only a push
	finished       int  // jobs that are kept
	results        bool // what is measured is to ask what became of one of them
	waiters        int  // leases that wait for items
	due            int  // delayed items that fall due at the same time
	connections    int
	bytes          int // of a value
}

// dimensions are what grows, one while the others stay as they are.
var dimensions = []struct {
	name  string
	set   func(e *extent, n int)
	sizes []int
	base  int // size that the others are compared with, the first with as many requests at once
}{
	{"queues", func(e *extent, n int) { e.queues = n }, []int{1, 16, 1e3, 1e4, 1e5}, 1},
	{"items", func(e *extent, n int) { e.items = n }, []int{1e3, 1e4, 1e5, 1e6, 1e7}, 1e3},
	{"backlog", func(e *extent, n int) { e.items, e.pushes = n, true },
		[]int{0, 1e4, 1e5, 4e5, 1e6, 1e7}, 0},
	{"waiters", func(e *extent, n int) { e.waiters = n }, []int{1, 16, 1e3, 1e4}, 16},
	{"groups", func(e *extent, n int) { e.groups = n }, []int{1, 16, 1e3, 1e4, 1e5}, 1},
	{"due", func(e *extent, n int) { e.due = n }, []int{1, 16, 1e3, 1e4, 1e5}, 1e3},
	{"finished", func(e *extent, n int) { e.finished = n }, []int{1e3, 1e4, 1e5, 1e6}, 1e3},
	{"results", func(e *extent, n int) { e.finished, e.results = n, true },
		[]int{1e3, 1e4, 1e5, 1e6}, 1e3},
	{"connections", func(e *extent, n int) { e.connections = n }, []int{1, 16, 1e3, 1e4}, 1},
	{"bytes", func(e *extent, n int) { e.bytes = n }, []int{0, 128, 4096, 65536, 1e6}, 128},
}

// BenchmarkGrowth measures what an operation takes with more and more of everything. Each size has
// new services. One of the base size takes turns with it, because the speed of a machine changes:
// the growth compares the two. So does one of another build with -against, as in BenchmarkService.
//
// The operation is an item's life: its push, a lease from the same queue, and the acknowledgement.
// Clients are in the process of the NATS server, and need no sockets.
func BenchmarkGrowth(b *testing.B) {
	if *pqbridge == "" {
		b.Skip("make bench-growth says which program is measured")
	}

	for _, d := range dimensions {
		b.Run(d.name, func(b *testing.B) {
			for _, n := range d.sizes {
				b.Run(strconv.Itoa(n), func(b *testing.B) {
					e := extent{queues: 1, connections: shape.Connections, bytes: shape.Size}
					d.set(&e, n)
					all := startGrowing(b, e, builds()...)
					if n != d.base {
						d.set(&e, d.base)
						all = append(all, startGrowing(b, e, "base")...)
					}
					b.Run(*store, benchmarkGrowing(all))
				})
			}
		})
	}

	b.Run("latency", benchmarkLatency)
	b.Run("tenants", benchmarkTenants)
	b.Run("start", benchmarkStart)
	b.Run("rest", benchmarkRest)
}

// benchmarkGrowing returns a benchmark of services, which take turns in every call.
func benchmarkGrowing(all []*growing) func(b *testing.B) {
	turns := 0
	return func(b *testing.B) {
		sums := sums{}
		for range b.N {
			for k := range all {
				g := all[(turns+k)%len(all)]
				if err := g.turn(b.Context(), sums.of(g.name)); err != nil {
					b.Fatal(err)
				}
			}
			turns++
		}

		sums.report(b)
		peak := func(i int) float64 { return float64(testenv.PeakMemory(all[i].pid)) / (1 << 20) }
		b.ReportMetric(peak(0), "peak-MiB")
		if sums["old"] != nil {
			b.ReportMetric(100*peak(0)/peak(1), "peak-ratio-%")
		}
		if base := sums["base"]; base != nil && base.each() > 0 {
			b.ReportMetric(100*sums["new"].each()/base.each(), "cpu-growth-%")
		}
	}
}

// growing is a service with that much of everything.
type growing struct {
	extent
	*service
	value   []byte
	clients []*client.Client // one each connection
	numbers atomic.Int64     // of operations
	acked   chan error       // how acknowledgements of waiters ended

	mu  sync.Mutex
	ids []string // of finished jobs
}

// startGrowing starts services with that much of everything.
func startGrowing(b *testing.B, e extent, names ...string) (all []*growing) {
	// Else an operation would take another one's item.
	if e.waiters == 0 && e.due == 0 && !e.pushes {
		e.items = max(e.items, e.queues, e.groups)
	}

	for _, s := range startServices(b, names...) {
		g := &growing{
			extent:  e,
			service: s,
			value:   value(e.bytes)[:e.bytes],
			acked:   make(chan error),
		}
		if err := g.start(b); err != nil {
			b.Fatal(err)
		}
		all = append(all, g)
	}
	return all
}

// start makes everything that there has to be, and returns when the service has come to rest.
func (g *growing) start(b *testing.B) error {
	for range g.connections {
		nc := g.env.Connect(nats.InProcessServer(g.env.NATS))
		g.clients = append(g.clients,
			client.New(nc, client.WithGrammar(g.grammar), client.WithTimeout(testenv.Patience)))
	}

	if err := g.finish(b.Context()); err != nil {
		return err
	}
	if err := g.push(b.Context(), g.items); err != nil {
		return err
	}
	g.wait(b)

	const rest = 20 * time.Millisecond // of processor time in half a second
	end := time.Now().Add(testenv.Patience)
	for taken := 2 * rest; taken > rest && time.Now().Before(end); {
		before := testenv.ProcessorTime(g.pid)
		time.Sleep(500 * time.Millisecond)
		taken = testenv.ProcessorTime(g.pid) - before
	}
	return nil
}

// queue returns the queue whose turn it is, over the connection whose turn it is.
func (g *growing) queue(turn int) *client.Queue {
	name := fmt.Sprintf("growth-%d", turn%g.queues)
	return g.clients[turn%len(g.clients)].PriorityQueue(name)
}

// item returns an item of a queue, by its number there.
func (g *growing) item(number int, options ...client.PushOption) client.PushItem {
	if g.groups > 0 {
		group := strconv.Itoa(number % g.groups)
		number, options = number/g.groups, append(options, client.Group(group))
	}

	m := client.Message{Value: g.value}
	return client.PushItem{
		Priority: int64(number % shape.Priorities),
		Message:  m.With(options...),
	}
}

// fillers is how many requests for many items are under way.
const fillers = 16

// atOnce is how many requests are under way: with large values no more than a bridge accepts.
func (g *growing) atOnce() int {
	if g.waiters > 0 {
		return min(g.waiters, fillers)
	}
	return min(shape.Clients, underWay/max(g.bytes, 1))
}

// each does n things, so many at once.
func each(n, atOnce int, do func(i int) error) error {
	var running errgroup.Group
	running.SetLimit(atOnce)
	for i := range n {
		running.Go(func() error { return do(i) })
	}
	return running.Wait()
}

// push pushes n items, as many to each queue.
func (g *growing) push(ctx context.Context, n int, options ...client.PushOption) error {
	n /= g.queues
	return each(g.queues*upwards(n, fillBatch), fillers, func(i int) error {
		first := i / g.queues * fillBatch
		items := make([]client.PushItem, min(fillBatch, n-first))
		for k := range items {
			items[k] = g.item(first+k, options...)
		}
		pushed, err := g.queue(i).PushMany(ctx, items)
		if g.results {
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, p := range pushed {
				g.ids = append(g.ids, p.ID)
			}
		}
		return err
	})
}

// take leases n items of the only queue as they come, and acknowledges them.
func (g *growing) take(ctx context.Context, n int) error {
	var taken atomic.Int64
	return each(min(fillers, upwards(n, fillBatch)), fillers, func(i int) error {
		for taken.Load() < int64(n) {
			leased, err := g.queue(i).LeaseBatch(ctx, fillBatch)
			if errors.Is(err, client.ErrEmpty) {
				time.Sleep(time.Millisecond)
				continue
			}

			errs := g.clients[0].AckAll(ctx, leased...)
			if err := errors.Join(append(errs, err)...); err != nil {
				return err
			}
			taken.Add(int64(len(leased)))
		}
		return nil
	})
}

// finish has as many finished jobs.
func (g *growing) finish(ctx context.Context) error {
	if g.finished == 0 {
		return nil
	}

	change := client.Settings{KeepItems: int64(g.finished)} // the default would be too few
	if _, err := g.queue(0).Configure(ctx, change); err != nil {
		return err
	}
	err := g.push(ctx, g.finished, client.Keep(24*time.Hour))
	return cmp.Or(err, g.take(ctx, g.finished))
}

// wait has as many leases wait for the rest of the benchmark.
func (g *growing) wait(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	var waiting sync.WaitGroup
	b.Cleanup(func() { cancel(); waiting.Wait() })

	for i := range g.waiters {
		waiting.Go(func() {
			for ctx.Err() == nil {
				d, err := g.queue(i).Lease(ctx, client.Expires(subjects.MaxExpires))
				if err == nil {
					err = d.Ack(ctx)
				}

				select {
				case g.acked <- err:
				case <-ctx.Done():
				}
			}
		})
	}
}

// turn adds what a turn of about -seconds measures to s.
func (g *growing) turn(ctx context.Context, s *sum) error {
	end := time.Now().Add(turnTime())
	if g.due > 0 {
		for time.Now().Before(end) {
			if err := g.fallDue(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}

	var items atomic.Int64
	err := s.measure(g.pid, func() (int64, error) {
		err := each(g.atOnce(), g.atOnce(), func(int) error {
			for time.Now().Before(end) {
				if err := g.live(ctx, int(g.numbers.Add(1))); err != nil {
					return err
				}
				items.Add(1)
			}
			return nil
		})
		return items.Load(), err
	})
	if g.pushes { // the next turn finds as many
		err = cmp.Or(err, g.take(ctx, int(items.Load())))
	}
	return err
}

// live pushes an item and sees to the end of one of that queue.
func (g *growing) live(ctx context.Context, number int) error {
	q, item := g.queue(number), g.item(number/g.queues)
	if g.results {
		_, err := q.Result(ctx, g.ids[number*7919%g.finished]) // a prime, so they are far apart
		return err
	}

	_, err := q.PushMsg(ctx, item.Priority, item.Message)
	if err != nil || g.pushes {
		return err
	}
	if g.waiters > 0 {
		return <-g.acked
	}

	d, err := q.Lease(ctx)
	if err != nil {
		return err
	}
	return d.Ack(ctx)
}

// fallDue adds to s what it takes to lease and acknowledge items, from the time that all are due.
func (g *growing) fallDue(ctx context.Context, s *sum) error {
	due := time.Now().Add(5*time.Millisecond + time.Duration(g.due)*50*time.Microsecond)
	if err := g.push(ctx, g.due, client.At(due)); err != nil {
		return err
	}

	time.Sleep(time.Until(due))
	return s.measure(g.pid, func() (int64, error) { return int64(g.due), g.take(ctx, g.due) })
}
