package main

import (
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

// What fits is found again from values that it gives, and no part of it is negative.
func TestFit(t *testing.T) {
	batches := []batch{{1, 8, 1}, {1, 64, 1}, {1, 512, 1}, {4, 2, 2}, {4, 16, 16}, {4, 128, 110}}
	values := func(s sum) (values []float64) {
		for _, b := range batches {
			values = append(values, s.of(b))
		}
		return values
	}

	for _, want := range []sum{{3, 500, 20, 40}, {3, 500, 20, 0}, {0, 500, 0, 40}, {7, 0, 0, 0}} {
		got := fit(batches, values(want))
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-6*(1+want[i]) {
				t.Errorf("fit %v, want %v", got, want)
			}
		}
	}

	for _, part := range fit(batches, values(sum{3, -1, 20, 0})) {
		if part < 0 {
			t.Errorf("a part is %v", part)
		}
	}
}

// Batches and processors both limit a rate, which is below either limit.
func TestPredict(t *testing.T) {
	// A client costs as much as a bridge, and a NATS server nothing.
	c := costs{batch: sum{2, 1000, 10, 0}, processor: map[string]sum{
		"client": {5, 200, 0, 0},
		"bridge": {5, 200, 0, 0},
		"fdb":    {4, 400, 0, 0},
	}}

	for _, test := range []struct {
		name      string
		shape     shape
		op        string
		own, busy float64 // µs for an item
	}{
		// A batch of 10 takes 2*10+1000+10 µs.
		{"one queue", shape{1, 1, 20, 1}, "push", 103, (25 + 25 + 44) / 2.},
		// An item is two operations.
		{"lease", shape{1, 1, 20, 1}, "lease", 206, 2 * (25 + 25 + 44) / 2.},
		// A client alone has batches of its own.
		{"one client", shape{1, 1, 1, 1}, "push", 1012, (205 + 205 + 404) / 2.},
		// Four lanes with batches of 100.
		{"four queues", shape{1, 1, 800, 4}, "push", 12.1 / 4, (7 + 7 + 8) / 2.},
		{"two fdbservers", shape{2, 1, 800, 4}, "push", 12.1 / 4, (7 + 7 + 8) / 2.},
		// Four bridges push to a queue in batches of 25. One pops from it in batches of 100, and
		// three of four pops are forwarded.
		{"a queue at four bridges", shape{4, 4, 200, 1}, "push", 1060 / 25. / 4,
			(13 + 13 + 20) / 2.},
		{"its pops", shape{4, 4, 200, 1}, "pop", 12.1, (7 + 7 + 8 + 0.75*7) / 2.},
	} {
		rate := c.predict(test.shape, test.op, 2)
		want := 1e6 / math.Hypot(test.own, test.busy)
		if math.Abs(rate/want-1) > 1e-9 {
			t.Errorf("%s: %.0f, want %.0f", test.name, rate, want)
		}
	}
}

// A system that was measured is predicted from itself: what processors limit is taken out of the
// time of its batches, and comes back.
func TestAlone(t *testing.T) {
	for _, busy := range []float64{0, 3, 4, 4.9} {
		if got := math.Hypot(alone(5, busy), busy); math.Abs(got-5) > 1e-9 {
			t.Errorf("busy for %v of 5 µs: predicted %v", busy, got)
		}
	}
	if own := alone(5, 6); own <= 0 {
		t.Errorf("busy for longer than the item takes: its batches take %v", own)
	}
}

// Lines that are no results are passed over, and runs of one name are averaged.
func TestParse(t *testing.T) {
	m, _ := parse(strings.NewReader(`goos: linux
BenchmarkScale/servers=1/bridges=2/clients=128/queues=1/op=push-2  1  100 items/s  4 bridge-µs/item
BenchmarkScale/servers=1/bridges=2/clients=128/queues=1/op=push-2  1  300 items/s  6 bridge-µs/item
BenchmarkCounts/batch=10/queues=1/op=ack-2  1  2.0 rounds
PASS`)) // which is not complete
	if len(m.runs) != 1 || len(m.counts) != 1 {
		t.Fatalf("%d runs and %d counts", len(m.runs), len(m.counts))
	}

	run := m.runs[0]
	if want := (shape{1, 2, 128, 1}); run.shape != want || run.op != "push" {
		t.Errorf("a run of %+v %s", run.shape, run.op)
	}
	if run.values["items/s"] != 200 || run.values["bridge-µs/item"] != 5 {
		t.Errorf("values %v", run.values)
	}

	for bad, want := range map[string]string{
		"":                                       "no run of BenchmarkScale with servers=4",
		"BenchmarkScale/servers=x-2 1 2 items/s": `"servers=x"`,
		"BenchmarkScale/color=1-2 1 2 items/s":   `"color=1"`,
		"BenchmarkScale/op=push-2 1 x items/s":   `"x"`,
	} {
		if _, err := parse(strings.NewReader(bad)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}

// What makes no sense, or no number of bridges can do, is refused.
func TestBadPlans(t *testing.T) {
	for args, want := range map[string]string{
		"-rate 0":               "above 0",
		"-rate NaN":             "above 0",
		"-load 1.1":             "at most 1",
		"-queues 1":             "too many for 1 queues",
		"-rate 1e9 -queues 1e7": "no number of bridges",
		"-measured nowhere.txt": "nowhere.txt",
	} {
		err := run(io.Discard, strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// The page shows what the commands in it print.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}

	commands := regexp.MustCompile(`(?m)^    go run ./testenv/scale(.*)$`).
		FindAllStringSubmatch(string(page), -1)
	if len(commands) == 0 {
		t.Error("no command is in the page")
	}
	for _, command := range commands {
		if strings.Contains(command[1], "-measured") { // of the reader
			continue
		}
		var out strings.Builder
		if err := run(&out, strings.Fields(command[1])); err != nil {
			t.Errorf("%s: %v", command[0], err)
		}
		if !strings.Contains(string(page), out.String()) {
			t.Errorf("after %s the page should have:\n%s", command[0], out.String())
		}
	}
}

// The page has the ratio of each prediction to what was measured, in the order of -check.
func TestPageHasRatios(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	if err := run(&out, []string{"-check"}); err != nil {
		t.Fatal(err)
	}

	var want []string
	ratio := regexp.MustCompile(`(?m) (\d+\.\d\d) \|$`)
	for _, row := range ratio.FindAllStringSubmatch(out.String(), -1) {
		want = append(want, row[1])
	}

	_, table, _ := strings.Cut(string(page), "| fdbservers, bridges |")
	table, _, _ = strings.Cut(table, "\n\n")
	got := regexp.MustCompile(`\d+\.\d\d`).FindAllString(table, -1)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the table has %q, want %q", got, want)
	}
}
