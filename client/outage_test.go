package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// outage is a system whose NATS server can be away. A client of it is back after the bridge.
type outage struct {
	*testing.T
	e    *testenv.Env
	nc   *nats.Conn
	jobs *client.Queue // of nc
	lost chan struct{}
}

func newOutage(t *testing.T, options ...client.Option) *outage {
	o := &outage{T: t, e: testenv.New(t, testenv.Options{}), lost: make(chan struct{}, 9)}
	o.nc = o.e.Connect(nats.ReconnectWait(time.Hour),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { o.lost <- struct{}{} }))
	o.jobs = client.New(o.nc, options...).PriorityQueue("jobs")

	return o
}

func (o *outage) begin() {
	o.Helper()
	o.e.NATS.Stop()
	<-o.lost
}

// end brings NATS back, then the bridge, calls before, and then brings the client back.
func (o *outage) end(before func()) {
	o.Helper()
	o.e.NATS.Start()
	near := client.New(o.e.Conn, client.WithTimeout(time.Second)).PriorityQueue("jobs")
	testenv.Eventually(o.T, func() error {
		_, err := near.Len(o.Context())
		return err
	})

	before()
	ok(o.T, o.nc.ForceReconnect())
}

func (o *outage) push(n int) (values []string) {
	o.Helper()
	for i := range n {
		values = append(values, fmt.Sprint(i))
		pushOne(o.T, client.New(o.e.Conn).PriorityQueue("jobs"), int64(i), values[i])
	}

	return values
}

// pops are calls that pop or lease, and return the values.
var pops = map[string]func(context.Context, *client.Queue) (string, error){
	"pop": func(ctx context.Context, q *client.Queue) (string, error) {
		return valueOf(q.Pop(ctx))
	},
	"wait": func(ctx context.Context, q *client.Queue) (string, error) {
		return valueOf(q.Pop(ctx, client.Expires(time.Hour), client.IdleHeartbeat(rarely)))
	},
	"batch": func(ctx context.Context, q *client.Queue) (string, error) {
		items, err := q.PopBatch(ctx, 2)
		return joinValues(items), err
	},
	"lease": func(ctx context.Context, q *client.Queue) (string, error) {
		return valueAcked(q.Lease(ctx, client.AckWait(time.Hour)))
	},
}

// A program that goes on asking while NATS is away loses nothing: what it has given up is never
// sent.
func TestPopsThroughAnOutage(t *testing.T) {
	for name, pop := range pops {
		subtest(t, name, func(t *testing.T) {
			o := newOutage(t)
			want := o.push(10)
			// This leaves a subscription for later requests.
			if n, err := o.jobs.Len(t.Context()); n != 10 || err != nil {
				t.Fatal(n, err)
			}

			o.begin()
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				_, err := pop(ctx, o.jobs)
				cancel()

				if !errors.Is(err, client.ErrNotSent) ||
					!errors.Is(err, context.DeadlineExceeded) ||
					errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("while NATS is away: %v", err)
				}
			}
			if n, err := o.nc.Buffered(); n > 0 || err != nil {
				t.Errorf("%d bytes wait to be sent, %v", n, err)
			}

			o.end(func() {})
			var got []string

			for len(got) < len(want) {
				value, err := pop(t.Context(), o.jobs)
				if err != nil {
					t.Fatalf("after %d items: %v", len(got), err)
				}

				got = append(got, strings.Fields(value)...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// What comes for a request that was given up goes back at once, also while an older one waits for
// its answer.
func TestGivenUpRequestsGiveBack(t *testing.T) {
	type far struct {
		*client.Queue
		held *client.Delivery
	}

	requests := map[string]func(context.Context, far) error{
		"pop": func(ctx context.Context, q far) error {
			_, err := q.Pop(ctx)
			return err
		},
		"batch": func(ctx context.Context, q far) error {
			_, err := q.PopBatch(ctx, 2)
			return err
		},
		"large batch": func(ctx context.Context, q far) error {
			_, err := q.PopBatch(ctx, 1000)
			return err
		},
		"lease": func(ctx context.Context, q far) error {
			_, err := q.Lease(ctx)
			return err
		},
		"lease batch": func(ctx context.Context, q far) error {
			_, err := q.LeaseBatch(ctx, 2)
			return err
		},
		"next": func(ctx context.Context, q far) error {
			_, err := q.held.Next(ctx)
			return err
		},
		"wait": func(ctx context.Context, q far) error {
			_, err := q.Lease(ctx, client.Expires(time.Hour))
			return err
		},
	}

	for name, request := range requests {
		subtest(t, name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{})
			near := client.New(e.Conn).PriorityQueue("jobs")
			sent, late := holdRequests(t, e)
			c := client.New(e.Conn, client.WithGrammar(must(subjects.New("far", "q"))))
			var queues []far

			for range 2 {
				pushOne(t, near, 0, "held")
				d := leaseOne(t, near, client.AckWait(time.Hour))
				ack := "far" + strings.TrimPrefix(d.AckSubject(), "pq")
				queues = append(queues, far{c.PriorityQueue("jobs"), c.Delivery(ack)})
			}

			pushOne(t, near, 1, "a")

			patient := async(func() (string, error) { return "", request(t.Context(), queues[0]) })
			first := <-sent
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() (string, error) { return "", request(ctx, queues[1]) })
			second := <-sent

			cancel()
			if got := <-done; !errors.Is(got.err, context.Canceled) ||
				!errors.Is(got.err, client.ErrUnknownOutcome) {
				t.Errorf("given up with %v", got.err)
			}

			late(second)
			testenv.Eventually(t, func() error {
				d, err := near.Lease(t.Context(), client.AckWait(time.Hour))
				if err != nil {
					return err
				}
				if string(d.Value) != "a" || d.Deliveries != 1 {
					t.Errorf("back is %q, delivery %d", d.Value, d.Deliveries)
				}

				return d.Snooze(t.Context(), 0)
			})

			late(first)
			if got := <-patient; got.err != nil {
				t.Errorf("the older request: %v", got.err)
			}
		})
	}
}

// holdRequests returns the requests on subjects that begin with "far", and a function that passes
// one on to the bridge.
func holdRequests(t *testing.T, e *testenv.Env) (sent <-chan *nats.Msg, pass func(*nats.Msg)) {
	t.Helper()
	nc, held := e.Connect(), make(chan *nats.Msg, 9)
	succeeds(t)(nc.ChanSubscribe("far.>", held))
	ok(t, nc.Flush())

	return held, func(m *nats.Msg) {
		t.Helper()
		ok(t, e.Conn.PublishRequest("pq"+strings.TrimPrefix(m.Subject, "far"), m.Reply, m.Data))
	}
}

// A wait that is given up ends at once, and takes nothing.
func TestGivenUpWaitsEnd(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, jobs := newQueue(t)
		pushOne(t, jobs, 1, "held")
		held := leaseOne(t, jobs, client.AckWait(time.Hour))

		for _, wait := range []func(context.Context) (string, error){
			func(ctx context.Context) (string, error) { return pops["wait"](ctx, jobs) },
			func(ctx context.Context) (string, error) {
				return valueAcked(held.Next(ctx, client.Expires(time.Hour)))
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() (string, error) { return wait(ctx) })
			waitForPops(t, e, 1)

			cancel()

			wantOutcome(t, "given up", <-done, context.Canceled, "")
			waitForPops(t, e, 0)
		}
	})
}
