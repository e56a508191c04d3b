package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// testRig has clients and a NATS server, whose other side is conn.
func testRig(t *testing.T) *rig {
	t.Helper()
	env := testenv.New(t, testenv.Options{})
	r := &rig{url: env.NATS.URL(), conn: env.Conn, Options: Options{Clients: 7, Connections: 3, Priorities: 1}}
	var err error
	if r.conns, err = r.connectAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, nc := range r.opened {
			nc.Close()
		}
	})
	return r
}

// serve answers requests.
func (r *rig) serve(t *testing.T, subject string, handle func(*nats.Msg)) {
	t.Helper()
	_, err := r.conn.Subscribe(subject, handle)
	if err == nil {
		err = r.conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoadCountsRequests(t *testing.T) {
	r := testRig(t)
	var seen atomic.Int64
	r.serve(t, "count", func(m *nats.Msg) {
		seen.Add(1)
		_ = m.Respond(nil)
	})
	l := r.asking(nil, "count")
	for range 2 { // nothing of the first turn may show in the second
		seen.Store(0)
		out, err := runLoad(t.Context(), l, limit{steps: 100})
		if err != nil || out.items != 100 || seen.Load() != 100 || out.dry {
			t.Errorf("%d requests counted, %d seen, dry %v, %v: want 100 of each", out.items, seen.Load(), out.dry, err)
		}
		if out.latency.TotalCount() != 100 || out.elapsed <= 0 || out.rate() <= 0 {
			t.Errorf("latencies of %d requests, elapsed %v", out.latency.TotalCount(), out.elapsed)
		}
	}
	out, err := runLoad(t.Context(), l, limit{duration: 20 * time.Millisecond})
	if err != nil || out.elapsed <= 0 {
		t.Errorf("%d requests in %v, %v", out.items, out.elapsed, err)
	}
}

func TestLoadEndsWithContext(t *testing.T) {
	r := testRig(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("told to stop")
	var seen atomic.Int64
	r.serve(t, "slow", func(m *nats.Msg) {
		if seen.Add(1) == 20 {
			cancel(reason)
		}
		_ = m.Respond(nil)
	})
	if _, err := runLoad(ctx, r.asking(nil, "slow"), limit{}); !errors.Is(err, reason) {
		t.Errorf("error %v, want %v", err, reason)
	}
}

// leaser is a service with some items, which counts those that are acknowledged.
type leaser struct {
	nc           *nats.Conn
	left, leased atomic.Int64
	acked        atomic.Int64
}

// newLeaser serves leases.pop.min, and ack.*.
func newLeaser(t *testing.T, r *rig, items int64) *leaser {
	l := &leaser{nc: r.conn}
	l.left.Store(items)
	r.serve(t, "leases.pop.min", l.lease)
	r.serve(t, "ack.*", func(m *nats.Msg) {
		l.acked.Add(1)
		if string(m.Data) == payloadNext {
			l.lease(m)
		} else {
			_ = m.Respond(nil)
		}
	})
	return l
}

// lease answers a pop.
func (l *leaser) lease(m *nats.Msg) {
	if l.left.Add(-1) < 0 {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"404"}}})
		return
	}
	_ = l.nc.PublishRequest(m.Reply, fmt.Sprintf("ack.%d", l.leased.Add(1)), []byte("item"))
}

// Each kind of request gets all items, acknowledges those that are leased, and gives back at the
// end of a turn what a client still has.
func TestRequests(t *testing.T) {
	const items = 1000
	for name, c := range map[string]struct {
		load  func(q *queue) load
		acked int64 // in the end
	}{
		"single":  {func(q *queue) load { return q.rig.asking(nil, q.subject("pop.min")) }, 0},
		"acked":   {(*queue).leasing, items},
		"chained": {(*queue).chaining, items},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRig(t)
			service := newLeaser(t, r, items)
			l := c.load(&queue{rig: r, prefix: "leases."})

			out, err := runLoad(t.Context(), l, limit{steps: 10})
			if leased := service.leased.Load(); err != nil || out.items != leased || out.dry {
				t.Errorf("%d items of %d, dry %v, %v", out.items, leased, out.dry, err)
			}
			first := out.items
			out, err = runLoad(t.Context(), l, limit{})
			if err != nil || out.items != items-first || !out.dry {
				t.Errorf("%d items, dry %v, %v: want %d until the queue is empty", out.items, out.dry, err, items-first)
			}

			for _, nc := range r.opened { // what they published has arrived then
				if err := nc.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.conn.Request("ack.0", nil, grace); err != nil { // the service has handled it then
				t.Fatal(err)
			}
			if got := service.acked.Load() - 1; got != c.acked {
				t.Errorf("%d items acknowledged, want %d", got, c.acked)
			}
		})
	}
}

func TestRequestsEndWithBadReplies(t *testing.T) {
	away := nats.Header{"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"the store is away"}}
	for _, c := range []struct {
		want  string
		load  func(q *queue) load
		reply nats.Msg
	}{
		{"has no reply subject", (*queue).leasing, nats.Msg{}},
		{"has no reply subject", (*queue).chaining, nats.Msg{}},
		{"the store is away (503)", (*queue).mixed, nats.Msg{Header: away}},
		{"the store is away (503)", (*queue).pushingOnce, nats.Msg{Header: away}},
		{nats.ErrNoResponders.Error(), func(q *queue) load { return q.rig.asking(nil, "nobody") }, nats.Msg{}},
	} {
		t.Run(c.want, func(t *testing.T) {
			r := testRig(t)
			r.serve(t, "bad.>", func(m *nats.Msg) {
				_ = m.RespondMsg(&nats.Msg{Header: c.reply.Header, Data: c.reply.Data})
			})
			q := &queue{rig: r, prefix: "bad."}
			_, err := runLoad(t.Context(), c.load(q), limit{duration: time.Minute})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want words %q", err, c.want)
			}
		})
	}
}

// A Worker ends with the time of its turn although its queue is empty.
func TestWorkersEndInTime(t *testing.T) {
	r := testRig(t)
	w := &workers{clients: []int{2}}
	w.queues = []*client.PriorityQueue{client.New(r.conns[0]).PriorityQueue("empty")}
	out, err := runLoad(t.Context(), w, limit{duration: 50 * time.Millisecond})
	if err != nil || out.items != 0 {
		t.Errorf("%d items, %v: want none, and no error", out.items, err)
	}
}

func TestReport(t *testing.T) {
	out := newOutcome()
	out.items, out.elapsed, out.dry = 4, time.Second, true
	_ = out.latency.RecordValue(int64(2 * time.Millisecond))
	w := &row{
		name: "pop.min", out: out, all: process.Machine{All: 4 * time.Second, Stolen: time.Second},
		used: map[string]process.Usage{
			userClient: {Known: true, CPU: 5 * time.Microsecond}, userService: {},
		},
		extra: []Figure{inMillis("restart", 1500*time.Microsecond), times(3, "naive", 2)},
	}
	r := newReport(Options{Payload: 128, Clients: 1, Connections: 1, Priorities: 1, Duration: time.Second})
	r.Rows = []Row{{Name: "push"}, w.result(8)}

	var table, lines strings.Builder
	if err := errors.Join(r.Write(&table), r.WriteJSON(&lines)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pop.min*", "2.00", "0.50", "25 %", "1.2", "restart 1.50 ms, of naive 1.50", "ran empty"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in the table:\n%s", want, table.String())
		}
	}
	for _, without := range []string{"service", "FDB", "queue  "} {
		if strings.Contains(table.String(), without) {
			t.Errorf("a column that is empty, %q, is in the table:\n%s", without, table.String())
		}
	}
	for _, want := range []string{
		`"payload":128`, `"name":"pop.min","items":4,"rate":4,"ratio":0.5,"p50_us":20`, `"client_us":1.25,"stolen":0.25`,
		`{"name":"restart","value":1.5,"unit":"ms"}`,
	} {
		if strings.Count(lines.String(), "\n") != 2 || !strings.Contains(lines.String(), want) {
			t.Errorf("%s is not in the two lines\n%s", want, lines.String())
		}
	}
}
