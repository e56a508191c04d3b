package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

func options(e *testenv.Env) Options {
	return Options{
		Dial: func() (*nats.Conn, error) {
			return nats.Connect(e.NATS.URL(), nats.Timeout(testenv.Patience))
		},
		Grammar:     e.Grammar,
		Queue:       "bench-try",
		Queues:      1,
		Mode:        Mixed,
		Timeout:     testenv.Patience,
		Batch:       1,
		Clients:     8,
		Connections: 2,
		Size:        100,
		Priorities:  3,
		Count:       400,
	}
}

func result(t *testing.T, o Options) *Report {
	t.Helper()
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	return report
}

// A mixed load pushes as many items as it takes, and leaves none.
func TestMixed(t *testing.T) {
	o := options(testenv.New(t, testenv.Options{}))
	for _, o.FIFO = range []bool{false, true} {
		report := result(t, o)
		if n := report.Operations[0].Count + report.Operations[1].Count; n != 400 {
			t.Errorf("FIFO %t: %d requests, want 400", o.FIFO, n)
		}

		for _, row := range report.Operations {
			if row.Count < 100 || row.Errors != 0 || row.Rate <= 0 || row.P50 <= 0 ||
				row.Max < row.P50 {
				t.Errorf("FIFO %t: row %+v", o.FIFO, row)
			}
		}
	}

	o.Mode, o.Count, o.Duration = Pop, 0, time.Hour
	report := result(t, o)
	var text strings.Builder

	err := report.Write(&text)
	if err != nil || !report.RanDry || !strings.Contains(text.String(), "ran out of items") {
		t.Errorf("%v: %+v\n%s", err, report, text.String())
	}
}

// Mixed removes what it has left in the queue, also after it was stopped between a push and its
// pop. What an earlier load pushed stays.
func TestMixedLeavesNothing(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	o := options(env)
	o.Mode, o.Count = Push, 5
	result(t, o)

	length := func() int64 {
		n, err := client.New(env.Conn).PriorityQueue(o.Queue).Len(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		return n
	}

	// One push, and no pop after it.
	o.Mode, o.Clients, o.Connections, o.Count = Mixed, 1, 1, 1
	report := result(t, o)

	if n := length(); n != 5 || report.Operations[1].Count != 0 {
		t.Errorf("%d items, want 5: %+v", n, report)
	}

	// The same after Ctrl-C: the pop would be next, in an hour.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Count, o.Duration, o.Rate = 0, time.Hour, 1.0/3600
	done := make(chan error, 1)

	go func() {
		_, err := Run(ctx, o)
		done <- err
	}()
	testenv.Eventually(t, func() error {
		if n := length(); n != 6 {
			return fmt.Errorf("%d items", n)
		}
		return nil
	})

	stop()

	if err := <-done; err != nil || length() != 5 {
		t.Errorf("%d items, want 5: %v", length(), err)
	}
}

// Each mode takes as many items as it should, one by one and in batches.
func TestModes(t *testing.T) {
	o := options(testenv.New(t, testenv.Options{}))
	for _, o.FIFO = range []bool{false, true} {
		for _, o.Batch = range []int{1, 50} {
			for _, mode := range []Mode{Pop, Lease, Work} {
				o.Mode, o.Count = Push, 401
				want := int64(401+o.Batch-1) / int64(o.Batch) * int64(o.Batch)
				if row := result(t, o).Operations[0]; row.Count != want || row.Rate <= 0 ||
					row.P50 <= 0 {
					t.Errorf("FIFO %t, batches of %d: %+v, want %d", o.FIFO, o.Batch, row, want)
				}

				o.Mode, o.Count = mode, want
				if mode == Work && o.Batch > 1 {
					o.Mode, o.Count = Pop, want+1 // more than there are
				}

				report := result(t, o)
				row := report.Operations[0]
				if row.Count != want || row.Rate <= 0 || row.P50 <= 0 ||
					report.RanDry != (o.Count > want) {
					t.Errorf("FIFO %t, batches of %d: %+v of %+v, want %d", o.FIFO, o.Batch, row,
						report, want)
				}
			}
		}
	}
}

// A load pops nothing but its own items.
func TestItemsOfOthersStay(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	e.Request("pq.bench-try.push.2", nil, []byte("precious"))
	o := options(e)

	for _, mode := range []Mode{Pop, Mixed} {
		o.Mode = mode
		if _, err := Run(t.Context(), o); !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", mode, err)
		}
	}

	// One that the first look does not see comes back.
	for _, o.Mode = range []Mode{Pop, Lease, Work} {
		e.Request("pq.bench-try.push.1", nil, value(len(mark)))
		if _, err := Run(t.Context(), o); !errors.Is(err, errForeign) {
			t.Errorf("%s: taken on the way: %v", o.Mode, err)
		}
	}

	got := e.Request("pq.bench-try.pop.min", nil, nil)
	if string(got.Data) == mark { // a Worker may stop before it comes to its own
		got = e.Request("pq.bench-try.pop.min", nil, nil)
	}
	if string(got.Data) != "precious" || got.Header.Get("Pq-Priority") != "2" {
		t.Errorf("left %q %v", got.Data, got.Header)
	}
}

// One request at once, and the next when its turn comes, unless the time is over.
func TestRateAndDuration(t *testing.T) {
	o := options(testenv.New(t, testenv.Options{}))
	o.Count, o.Duration, o.Rate = 0, 50*time.Millisecond, 0.001

	report := result(t, o)
	if n := report.Operations[0].Count + report.Operations[1].Count; n > 1 {
		t.Errorf("%d requests, one each 1,000 s", n)
	}
}

// An interrupt ends the load with the figures so far.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := testenv.New(t, testenv.Options{})
	o := options(e)
	o.Mode, o.Count, o.Duration = Push, 0, time.Hour

	go func() {
		defer cancel()
		for err := error(client.ErrEmpty); errors.Is(err, client.ErrEmpty); {
			_, err = client.New(e.Conn).PriorityQueue("bench-try").Peek(ctx)
		}
	}()

	report, err := Run(ctx, o)
	if err != nil || report.Operations[0].Count == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// An item that another program pushes while a load runs goes back to its place as it was, and the
// delivery does not count. What the load had pushed is said to be left.
func TestItemsOfOthersComeBackUnchanged(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	for _, fifo := range []bool{false, true} {
		for _, batch := range []int{1, 50} {
			o := options(env)
			o.Queue, o.FIFO, o.Batch = fmt.Sprintf("shared-%d", batch), fifo, batch
			o.Count, o.Duration = 0, time.Hour
			q := target.Queue(client.New(env.Conn, client.WithTimeout(testenv.Patience)), fifo,
				o.Queue)
			done := make(chan error, 1)

			go func() {
				_, err := Run(t.Context(), o)
				done <- err
			}()
			testenv.Eventually(t, func() error { // the load has begun
				info, err := q.Info(t.Context())
				if err == nil && info.Ready+info.Leased == 0 {
					err = client.ErrEmpty
				}

				return err
			})

			priority := int64(-1)
			if fifo {
				priority = 0
			}

			ack, err := q.Push(t.Context(), priority, []byte("precious"), client.MsgID("id1"),
				client.Unique("key"), client.Group("acme"), client.TTL(time.Hour))
			if err != nil {
				t.Fatal(err)
			}

			if err := <-done; !errors.Is(err, errForeign) {
				t.Errorf("FIFO %t, batches of %d: %v, want %v", fifo, batch, err, errForeign)
			}

			var got *client.Delivery
			for got == nil || strings.HasPrefix(string(got.Value), mark) {
				if got, err = q.Lease(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got.ID != ack.ID || got.Unique != "key" || got.Group != "acme" ||
				got.Deliveries != 1 ||
				got.Headers["Nats-TTL"] == nil {
				t.Errorf("FIFO %t, batches of %d: it came back as %+v, want id %s", fifo, batch,
					got, ack.ID)
			}
		}
	}
}

// What a load cannot push, because the queue is full, it does not take from an earlier backlog.
func TestMixedKeepsABacklogOfAFullQueue(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	o := options(env)
	o.Queue, o.Mode, o.Count = "full", Push, 50
	result(t, o)
	q := client.New(env.Conn, client.WithTimeout(testenv.Patience)).PriorityQueue(o.Queue)

	for _, room := range []int{0, 3} {
		_, err := q.Configure(t.Context(), client.Settings{MaxItems: int64(50 + room)})
		if err != nil {
			t.Fatal(err)
		}

		o.Mode, o.Count = Mixed, 100

		report := result(t, o)

		n, err := q.Len(t.Context())
		if err != nil || n != 50 {
			t.Errorf("room for %d: %d items, want 50: %v, %+v", room, n, err, report)
		}
		if room == 0 && (report.Operations[0].Errors == 0 || report.Operations[1].Count > 0) {
			t.Errorf("room for %d: %+v", room, report)
		}
	}
}

// Over many queues each mode takes as many items as it should, though most queues run dry early.
func TestManyQueues(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	o := options(env)
	few := o
	o.Queues, few.Queues = 50, 10

	for _, mode := range []Mode{Pop, Lease} {
		o.Mode, few.Mode = Push, Push
		result(t, o)
		result(t, few)

		o.Mode = mode
		more := o
		more.Count = 2 * o.Count
		for _, o := range []Options{o, more} {
			report := result(t, o)
			count := report.Operations[0].Count
			if count != 400 || report.RanDry != (o.Count > 400) {
				t.Errorf("%s: took %d items, want 400: %+v", mode, count, report)
			}
		}
	}
}

// Mixed leaves in each queue as many items as an earlier load did.
func TestMixedLeavesEachQueueAsItWas(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	o := options(env)
	o.Mode, o.Queues, o.Count = Push, 5, 7
	result(t, o)

	o.Mode = Mixed
	for _, o.Count = range []int64{3, 403} {
		if report := result(t, o); report.RanDry || report.Operations[0].Count == 0 {
			t.Errorf("%+v", report)
		}

		for i, want := range []int64{2, 2, 1, 1, 1} {
			queue := fmt.Sprintf("bench-try-%d", i+1)
			n, err := client.New(env.Conn).PriorityQueue(queue).Len(t.Context())
			if n != want || err != nil {
				t.Errorf("after %d, %s has %d items, want %d: %v", o.Count, queue, n, want, err)
			}
		}
	}
}
