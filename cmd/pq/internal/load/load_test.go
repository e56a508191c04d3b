package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

func options(e *testenv.Env) Options {
	return Options{
		Dial:    func() (*nats.Conn, error) { return nats.Connect(e.NATS.URL()) },
		Grammar: e.Grammar, Queue: "try", Mode: Mixed,
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

func TestVerifiedLoad(t *testing.T) {
	o := options(testenv.New(t, testenv.Options{}))
	for _, o.FIFO = range []bool{false, true} {
		o.Mode, o.Verify = Mixed, true
		report := result(t, o)
		if v := report.Verify; !v.OK() || v.Pushed != v.Popped || v.Unknown != 0 {
			t.Errorf("FIFO %t: %+v", o.FIFO, v)
		}
		if n := report.Operations[0].Count + report.Operations[1].Count; n != 400 {
			t.Errorf("FIFO %t: %d requests, want 400", o.FIFO, n)
		}
		for _, row := range report.Operations {
			if row.Count < 100 || row.Errors != 0 || row.Rate <= 0 || row.P50 <= 0 || row.Max < row.P50 {
				t.Errorf("FIFO %t: row %+v", o.FIFO, row)
			}
		}
		o.Mode = Push
		if v := result(t, o).Verify; !v.OK() || v.Pushed != 400 || v.Popped != 400 {
			t.Errorf("FIFO %t: pushed only: %+v", o.FIFO, v)
		}
	}

	o.Verify = false
	result(t, o)
	o.Verify = true
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "400 items of an earlier load") {
		t.Errorf("verify with items there: %v", err)
	}
	o.Verify, o.Mode, o.Count, o.Duration = false, Pop, 0, time.Hour
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
		e.Request("pq.try.push.1", nil, value(newRun(), 1, markSize))
		if _, err := Run(t.Context(), o); !errors.Is(err, errForeign) {
			t.Errorf("%s: taken on the way: %v", o.Mode, err)
		}
	}
	got := e.Request("pq.try.pop.min", nil, nil)
	if _, _, err := parse(got.Data); err == nil { // a Worker may stop before it comes to its own
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

// An interrupt ends the load with what was measured, nothing left behind.
func TestInterrupt(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	o := options(e)
	o.Count, o.Duration, o.Verify = 0, time.Hour, true
	o.Progress = func(answered int64, _ time.Duration) {
		if answered > 0 {
			cancel()
		}
	}
	report, err := Run(ctx, o)
	if err != nil || !report.Verify.OK() || report.Verify.Pushed == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if got := string(e.Request("pq.try.len", nil, nil).Data); got != `{"queue":"try","len":0}` {
		t.Errorf("left %s", got)
	}
}

// A service that breaks its promises is found out. Each event is a number and a priority, when the request was sent and when
// it was answered, and a "?" if the outcome is unknown.
func TestVerifyFinds(t *testing.T) {
	for name, test := range map[string]struct {
		pushes, pops string
		lostPops     int64
		want         Verify
	}{
		"in order":                               {"1/0 0-10, 2/0 20-30, 3/1 0-10", "1/0 40-50, 2/0 60-70, 3/1 80-90", 0, Verify{Pushed: 3, Popped: 3}},
		"lost":                                   {"1/0 0-10", "", 0, Verify{Pushed: 1, Lost: 1}},
		"perhaps taken by a pop without a reply": {"1/0 0-10", "", 1, Verify{Pushed: 1, Unknown: 1}},
		"twice":                                  {"1/0 0-10", "1/0 20-30, 1/0 40-50", 0, Verify{Pushed: 1, Popped: 2, Duplicates: 1}},
		"never pushed":                           {"", "7/0 20-30", 0, Verify{Popped: 1, Unexpected: 1}},
		"a push of unknown outcome":              {"1/0 0-10?, 2/1 0-10", "2/1 20-30, 1/0 40-50", 0, Verify{Pushed: 1, Popped: 2, Unknown: 1}},
		"a smaller priority was there":           {"1/0 0-10, 2/1 0-10", "2/1 20-30, 1/0 40-50", 0, Verify{Pushed: 2, Popped: 2, OutOfOrder: 1}},
		"a smaller priority that may come later": {"1/0 0-25, 2/1 0-10", "2/1 20-30, 1/0 40-50", 0, Verify{Pushed: 2, Popped: 2}},
		"pops that overlap":                      {"1/0 0-10, 2/1 0-10", "2/1 20-30, 1/0 25-50", 0, Verify{Pushed: 2, Popped: 2}},
		"newer first":                            {"1/0 0-10, 2/0 11-20", "2/0 30-40, 1/0 50-60", 0, Verify{Pushed: 2, Popped: 2, OutOfOrder: 1}},
		"pushes that overlap":                    {"1/0 0-10, 2/0 5-20", "2/0 30-40, 1/0 50-60", 0, Verify{Pushed: 2, Popped: 2}},
	} {
		all := events{pushes: parseEvents(t, test.pushes), pops: parseEvents(t, test.pops), lostPops: test.lostPops}
		if got := all.verify(); *got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, *got, test.want)
		}
	}
}

func parseEvents(t *testing.T, text string) (list []event) {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		var e event
		if _, err := fmt.Sscanf(part, "%d/%d %d-%d", &e.number, &e.priority, &e.sent, &e.replied); err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		e.unknown = strings.HasSuffix(part, "?")
		list = append(list, e)
	}
	return list
}
