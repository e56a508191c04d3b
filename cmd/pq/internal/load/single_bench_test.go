package load

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// What BenchmarkGrowth measures of one service, with nothing to compare it with.

// latencies are those of one kind of event.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram // nanoseconds
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(int64(time.Microsecond), int64(10*time.Minute), 3)}
}

func (l *latencies) add(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(int64(time.Since(since))) // fails only beyond ten minutes
}

func (l *latencies) report(b *testing.B, name string) {
	for _, q := range []float64{50, 99} {
		ms := time.Duration(l.h.ValueAtQuantile(q)).Seconds() * 1e3
		b.ReportMetric(ms, fmt.Sprintf("%s-p%.0f-ms", name, q))
	}
	b.ReportMetric(0, "ns/op")
}

// stamped is an item that says when its push began.
func stamped(size int, options ...client.PushOption) (client.Message, time.Time) {
	value, now := make([]byte, max(size, 8)), time.Now()
	binary.BigEndian.PutUint64(value, uint64(now.UnixNano()))
	return client.Message{Value: value}.With(options...), now
}

// stamp is when the push of an item began. Items that are not stamped begin with zeros.
func stamp(item client.Item) (at time.Time, stamped bool) {
	nanos := binary.BigEndian.Uint64(item.Value)
	return time.Unix(0, int64(nanos)), nanos != 0
}

// client returns a client with a connection of its own.
func (s *service) client() *client.Client {
	return client.New(s.env.Connect(), client.WithGrammar(s.grammar),
		client.WithTimeout(testenv.Patience))
}

// queue returns a queue over a connection of its own.
func (s *service) queue(name string) *client.Queue { return s.client().PriorityQueue(name) }

// benchmarkLatency measures a service that does nothing else: one client pushes an item, for which
// another client waits, and when that has it, the next.
func benchmarkLatency(b *testing.B) {
	for _, size := range []int{128, 4096, 65536, 1e6} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := startServices(b, "new")[0]
			pusher, taker := s.queue("idle"), s.queue("idle")
			b.Run(*store, func(b *testing.B) {
				pushed, delivered := newLatencies(), newLatencies()
				for begun := time.Now(); time.Since(begun).Seconds() < *seconds; {
					got := make(chan error, 1)
					go func() {
						item, err := taker.Pop(b.Context(), client.Expires(time.Minute))
						if err == nil {
							at, _ := stamp(*item)
							delivered.add(at)
						}
						got <- err
					}()
					time.Sleep(2 * time.Millisecond) // it waits by then

					m, at := stamped(size)
					_, err := pusher.PushMsg(b.Context(), 0, m)
					pushed.add(at)
					if err = errors.Join(err, <-got); err != nil {
						b.Fatal(err)
					}
				}
				pushed.report(b, "push")
				delivered.report(b, "delivery")
			})
		})
	}
}

// backlog is how many items the loud tenant of benchmarkTenants has before it begins.
const backlog = 50_000

// tenants are two that have 16 workers together, or each 16 if they have queues of their own. The
// quiet one pushes an item 20 ms after the last acknowledgement, the loud one has a backlog and
// pushes all it can.
type tenants struct {
	quietQueue        string // the loud one has "shared"
	quiet, loud       []client.PushOption
	pushed, delivered *latencies   // of the quiet one
	waiting, more     atomic.Int64 // items of the quiet one, and pushes of the loud one
}

func benchmarkTenants(b *testing.B) {
	for _, c := range []struct {
		name         string
		busy, groups bool
		quietQueue   string
	}{
		{"alone", false, false, "quiet"},
		{"queues", true, false, "quiet"},
		{"groups", true, true, "shared"},
		{"shared", true, false, "shared"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := startServices(b, "new")[0]
			b.Run(*store, func(b *testing.B) {
				t := &tenants{
					quietQueue: c.quietQueue, pushed: newLatencies(), delivered: newLatencies(),
				}
				if c.groups {
					t.quiet = []client.PushOption{client.Group("quiet")}
					t.loud = []client.PushOption{client.Group("loud")}
				}
				if err := t.run(b.Context(), s, c.busy); err != nil {
					b.Fatal(err)
				}
				t.pushed.report(b, "push")
				t.delivered.report(b, "delivery")
				b.ReportMetric(float64(t.more.Load()) / *seconds, "loud-pushes/s")
			})
		})
	}
}

// run lasts -seconds, and then until all items of the quiet tenant are delivered.
func (t *tenants) run(ctx context.Context, s *service, busy bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var working, pushing errgroup.Group
	loud := client.Message{Value: make([]byte, 128)}.With(t.loud...)
	if busy {
		items := slices.Repeat([]client.PushItem{{Message: loud}}, fillBatch)
		q := s.queue("shared")
		err := each(backlog/fillBatch, fillers, func(int) error {
			_, err := q.PushBatch(ctx, items)
			return err
		})
		if err != nil {
			return err
		}
	}

	queues := map[string]*client.Queue{}
	for _, name := range []string{"shared", t.quietQueue} {
		if queues[name] != nil {
			continue
		}
		queues[name] = s.queue(name)
		for range 16 {
			working.Go(func() error { return t.work(ctx, queues[name]) })
		}
	}

	end := time.Now().Add(turnTime())
	if busy {
		q := s.queue("shared")
		for range 64 {
			pushing.Go(func() error {
				for time.Now().Before(end) {
					if _, err := q.PushMsg(ctx, 0, loud); err != nil {
						return err
					}
					t.more.Add(1)
				}
				return nil
			})
		}
	}
	q := s.queue(t.quietQueue)
	pushing.Go(func() error {
		for time.Now().Before(end) {
			t.waiting.Add(1)
			m, at := stamped(128, t.quiet...)
			if _, err := q.PushMsg(ctx, 0, m); err != nil {
				return err
			}
			t.pushed.add(at)
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	})

	err := pushing.Wait()
	for give := time.Now().Add(testenv.Patience); t.waiting.Load() > 0 && err == nil; {
		time.Sleep(time.Millisecond)
		if time.Now().After(give) {
			err = fmt.Errorf("%d items of the quiet tenant still wait", t.waiting.Load())
		}
	}
	stop()
	return cmp.Or(err, working.Wait())
}

// work is a worker of tenants.
func (t *tenants) work(ctx context.Context, q *client.Queue) error {
	for ctx.Err() == nil {
		d, err := q.Lease(ctx, client.Expires(time.Second))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrEmpty):
			continue
		case err != nil:
			return err
		}
		if at, ok := stamp(d.Item); ok {
			t.delivered.add(at)
			t.waiting.Add(-1)
		}
		if err := d.Ack(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// benchmarkStart measures how long a service takes from kill -9, while it takes pushes, to the
// first answer and the first item.
func benchmarkStart(b *testing.B) {
	if *store == "fdb" {
		b.Skip("a bridge of FoundationDB has nothing to load")
	}

	for _, n := range []int{1e4, 1e6, 1e7} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			env := testenv.New(b, testenv.Options{Stopped: true})
			env.NATS.Start()
			folder := "PQ_DATA_DIR=" + b.TempDir()
			grammar, err := subjects.New("new", "new-fifo")
			if err != nil {
				b.Fatal(err)
			}
			s := &service{"new", env, env.StartProgram(*pqbridge, "new", folder), grammar}
			g := &growing{
				extent: extent{queues: 1}, service: s,
				value: value(shape.Size), clients: []*client.Client{s.client()},
			}
			if err := g.push(b.Context(), n); err != nil {
				b.Fatal(err)
			}

			b.Run(*store, func(b *testing.B) {
				var ready, first time.Duration
				nc := env.Connect()
				for range b.N {
					ctx, cancel := context.WithCancel(b.Context())
					pushing := make(chan error, 1) // what is under way at the kill fails
					go func() { pushing <- g.push(ctx, 100*fillBatch) }()
					time.Sleep(20 * time.Millisecond)
					env.KillProgram(s.pid)
					begun := time.Now()
					popped := make(chan error, 1)
					go func() { // StartProgram asks ever more rarely
						for ctx.Err() == nil {
							_, err := nc.Request("new.any.len", nil, nats.DefaultTimeout)
							if err == nil {
								break
							}
							time.Sleep(time.Millisecond)
						}
						ready += time.Since(begun)
						_, err := g.queue(0).Pop(ctx)
						first += time.Since(begun)
						popped <- err
					}()
					s.pid = env.StartProgram(*pqbridge, "new", folder)
					if err := <-popped; err != nil {
						b.Fatal(err)
					}
					cancel()
					<-pushing
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ready.Seconds()*1e3/float64(b.N), "ready-ms")
				b.ReportMetric(first.Seconds()*1e3/float64(b.N), "first-pop-ms")
			})
		})
	}
}

// benchmarkRest measures what a service takes that has much and gets no requests.
func benchmarkRest(b *testing.B) {
	for _, c := range []struct {
		name string
		set  func(e *extent)
	}{
		{"nothing", func(e *extent) { e.items = 1 }},
		{"queues=10000", func(e *extent) { e.queues = 1e4 }},
		{"items=1000000", func(e *extent) { e.items = 1e6 }},
		{"waiters=100000", func(e *extent) { e.waiters = 1e5 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := extent{queues: 1, connections: shape.Connections, bytes: shape.Size}
			c.set(&e)
			g := startGrowing(b, e, "new")[0]
			b.Run(*store, func(b *testing.B) {
				begun, before := time.Now(), testenv.ProcessorTime(g.pid)
				for range b.N {
					time.Sleep(turnTime())
				}
				used := testenv.ProcessorTime(g.pid) - before
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(used.Seconds()*1e3/time.Since(begun).Seconds(), "ms/s")
				b.ReportMetric(float64(testenv.Memory(g.pid))/(1<<20), "MiB")
			})
		})
	}
}
