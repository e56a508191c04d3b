package load

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

func options(e *testenv.Env) Options {
	return Options{
		Dial:    func() (*nats.Conn, error) { return nats.Connect(e.NATS.URL(), nats.Timeout(testenv.Patience)) },
		Grammar: e.Grammar, Queue: "try", Mode: Mixed, Timeout: testenv.Patience,
		Batch: 1, Clients: 8, Connections: 2, Size: 100, Priorities: 3, Count: 400,
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

func TestMixed(t *testing.T) {
	o := options(testenv.New(t, testenv.Options{}))
	for _, o.FIFO = range []bool{false, true} {
		report := result(t, o)
		if n := report.Operations[0].Count + report.Operations[1].Count; n != 400 {
			t.Errorf("FIFO %t: %d requests, want 400", o.FIFO, n)
		}
		for _, row := range report.Operations {
			if row.Count < 100 || row.Errors != 0 || row.Rate <= 0 || row.P50 <= 0 || row.Max < row.P50 {
				t.Errorf("FIFO %t: row %+v", o.FIFO, row)
			}
		}
	}

	o.Mode, o.Count, o.Duration = Pop, 0, time.Hour
	report := result(t, o)
	var text strings.Builder
	if err := report.Write(&text); err != nil || !report.RanDry || !strings.Contains(text.String(), "ran empty") {
		t.Errorf("%v: %+v\n%s", err, report, text.String())
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
				if row := result(t, o).Operations[0]; row.Count != want || row.Rate <= 0 || row.P50 <= 0 {
					t.Errorf("FIFO %t, batches of %d: %+v, want %d", o.FIFO, o.Batch, row, want)
				}

				o.Mode, o.Count = mode, want
				if mode == Work && o.Batch > 1 {
					o.Mode, o.Count = Pop, want+1 // more than there are
				}
				report := result(t, o)
				row := report.Operations[0]
				if row.Count != want || row.Rate <= 0 || row.P50 <= 0 || report.RanDry != (o.Count > want) {
					t.Errorf("FIFO %t, batches of %d: %+v of %+v, want %d", o.FIFO, o.Batch, row, report, want)
				}
			}
		}
	}
}

// A load pops nothing but its own items.
func TestItemsOfOthersStay(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	e.Request("pq.try.push.2", nil, []byte("precious"))
	o := options(e)
	for _, mode := range []Mode{Pop, Mixed} {
		o.Mode = mode
		if _, err := Run(t.Context(), o); !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	// One that the first look does not see comes back.
	for _, o.Mode = range []Mode{Pop, Lease, Work} {
		e.Request("pq.try.push.1", nil, value(len(mark)))
		if _, err := Run(t.Context(), o); !errors.Is(err, errForeign) {
			t.Errorf("%s: taken on the way: %v", o.Mode, err)
		}
	}
	got := e.Request("pq.try.pop.min", nil, nil)
	if string(got.Data) == mark { // a Worker may stop before it comes to its own
		got = e.Request("pq.try.pop.min", nil, nil)
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

// An interrupt ends the load with what was measured.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := testenv.New(t, testenv.Options{})
	o := options(e)
	o.Mode, o.Count, o.Duration = Push, 0, time.Hour
	go func() {
		defer cancel()
		for err := error(client.ErrEmpty); errors.Is(err, client.ErrEmpty); {
			_, err = client.New(e.Conn).PriorityQueue("try").PeekMin(ctx)
		}
	}()
	report, err := Run(ctx, o)
	if err != nil || report.Operations[0].Count == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
}
