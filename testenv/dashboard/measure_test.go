package dashboard

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

var measure = flag.Int("measure", 0, "measure the dashboard with so many items")

const (
	// tabs are open while the bridge is watched, for watchTime.
	tabs      = 20
	watchTime = time.Minute
	// needles are the items of one customer among all others.
	needles = 12
)

// The figures of docs/dashboard.md can be measured again. The bridge is a process of its own, with
// the embedded store.
func TestMeasure(t *testing.T) {
	if *measure == 0 {
		t.Skip("go test -run TestMeasure -measure 1000000 measures")
	}

	load, _ := os.ReadFile("/proc/loadavg") // only Linux has it
	t.Logf("load before: %s", load)
	env := testenv.New(t, testenv.Options{Stopped: true})
	env.NATS.Start()
	program, err := build(t.TempDir(), "pqbridge")
	must(t, err)

	pid := env.StartProgram(program, "pq", "PQ_FIFO_PREFIX=q")
	env.Conn = env.Connect()
	testenv.Eventually(t, func() error {
		_, err := clientOf(env.Conn).ListPriorityQueues(t.Context(), "", 1)
		return err
	})

	s := systemIn(t, env)

	for i := range 50 {
		s.push(fmt.Sprintf("queue-%02d", i), 0, "a", "b", "c")
	}

	measurePaint(t, s, "with 50 queues", 300*time.Millisecond)
	t.Run("tabs, 50 queues", func(t *testing.T) { measureTabs(t, s, pid) })
	s.haystack("events", *measure)
	t.Run("search", func(t *testing.T) { measureSearch(t, s) })
	s.graveyard("orders", *measure*7/10)
	t.Run("dead letters", func(t *testing.T) { measureDead(t, s) })
	t.Run("tabs, with all items", func(t *testing.T) { measureTabs(t, s, pid) })

	for i := range 10_000 {
		s.push(fmt.Sprintf("many-%05d", i), 0, "a")
	}

	measurePaint(t, s, "with 10,000 queues", 2*time.Second)
}

func measurePaint(t *testing.T, s *system, what string, most time.Duration) {
	var times []time.Duration
	for range 5 {
		b := newTab(t, s.url) // nothing is cached
		b.open("/")
		b.until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
		paint := eval[float64](b,
			`performance.getEntriesByName("first-contentful-paint")[0].startTime`)
		times = append(times, time.Duration(paint*float64(time.Millisecond)))
	}

	slices.Sort(times)
	t.Logf("first paint %s: median %v of %v", what, times[2].Round(time.Millisecond), times)
	if times[2] > most {
		t.Errorf("want at most %v", most)
	}
}

// measureTabs compares what the bridge takes without and with open tabs. Each is the visible one of
// a browser of its own, which a hidden tab of one browser would not be.
func measureTabs(t *testing.T, s *system, pid int) {
	took := func() (bridge, board float64) { // in percent of a core
		b, d := testenv.ProcessorTime(pid), testenv.ProcessorTime(s.cmd.Process.Pid)
		<-time.After(watchTime)
		b, d = testenv.ProcessorTime(pid)-b, testenv.ProcessorTime(s.cmd.Process.Pid)-d
		return 100 * float64(b) / float64(watchTime), 100 * float64(d) / float64(watchTime)
	}

	idle, _ := took()
	all := make([]*tab, tabs)

	for i := range all {
		all[i] = newTab(t, s.url)
		all[i].open([]string{"/", fmt.Sprintf("/queue/pq/queue-%02d", i)}[i%2])
		all[i].sees("queue-")
	}

	bridge, board := took()
	for _, b := range all {
		if state := eval[string](b, "document.visibilityState"); state != "visible" {
			t.Errorf("a tab is %s, and asks for nothing", state)
		}
	}

	t.Logf("of a core, in %v: the bridge %.1f %% alone and %.1f %% with %d tabs; the dashboard "+
		"%.1f %%",
		watchTime, idle, bridge, tabs, board)
	if bridge-idle > 2 {
		t.Errorf("want at most 2 %% of a core more")
	}
}

// haystack pushes n items. As many as needles belong to the tenant acme, evenly spread.
func (s *system) haystack(queue string, n int) {
	s.t.Helper()
	began := time.Now()

	for i := 0; i < n; {
		items := make([]client.PushItem, min(50_000, n-i))
		for j := range items {
			tenant := fmt.Sprintf("tenant-%d", i%1000)
			if i%(n/needles) == n/needles/2 {
				tenant = "acme"
			}

			items[j].Message = client.Message{
				Headers: nats.Header{"X-Tenant": {tenant}}, Value: fmt.Appendf(nil,
					`{"order": %d, "customer": {"id": %d}, "lines": [{"sku": "A-17", "count": 2}]}`,
					i, i%9000),
			}

			i++
		}

		_, err := s.client.PriorityQueue(queue).PushMany(s.t.Context(), items)
		must(s.t, err)
	}

	s.t.Logf("%d items pushed in %v", n, time.Since(began).Round(time.Millisecond))
}

// graveyard makes n dead letters. As many as needles belong to acme.
func (s *system) graveyard(queue string, n int) {
	s.t.Helper()
	s.haystack(queue, n)
	began := time.Now()
	reasons := []string{"card declined", "timed out", "no such customer"}

	for done := 0; done < n; {
		batch, err := s.client.PriorityQueue(queue).
			LeaseBatch(s.t.Context(), 1000, client.AckWait(10*time.Minute))
		must(s.t, err)
		var ending sync.WaitGroup

		for i, delivery := range batch {
			ending.Go(func() {
				if err := delivery.Term(s.t.Context(), reasons[i%3]); err != nil {
					s.t.Error(err)
				}
			})
		}

		ending.Wait()
		done += len(batch)
	}

	s.t.Logf("%d dead letters made in %v", n, time.Since(began).Round(time.Millisecond))
}

// stopwatch returns a function that says how long something took, since the last time.
func stopwatch(t *testing.T) func(what string) time.Duration {
	began := time.Now()
	return func(what string) time.Duration {
		took := time.Since(began)
		t.Logf("%s: %v", what, took.Round(time.Millisecond))
		began = time.Now()
		return took
	}
}

func measureSearch(t *testing.T, s *system) {
	b := newTab(t, s.url)
	b.open("/queue/pq/events/items")
	b.fill("[name=header]", "X-Tenant: acme")
	step := stopwatch(t)
	b.press("form.filter", "Search")
	b.until(`$("#items tbody tr")`)

	if step("first match in all items") > 2*time.Second {
		t.Errorf("want the first match within 2 s")
	}

	b.seesIn("#items", fmt.Sprintf("%d items match", needles), "Looked at all")
	step("all matches")

	b.open("/queue/pq/events/items")
	b.fill("[name=match]", "is nowhere")
	b.press("form.filter", "Search")
	b.until(`$("#stop")`)
	step = stopwatch(t)
	b.press("#items", "Stop")
	b.seesIn("#items", "Stopped after")
	step("stopped: " + b.text("#items .search p"))
}

func measureDead(t *testing.T, s *system) {
	b := newTab(t, s.url)
	step := stopwatch(t)
	b.open("/dead")
	b.seesIn("#dead", "card declined")
	step("dead letters by cause, the first")
	b.until(`!$("#dead progress")`)
	step("counted: " + b.text("#dead p"))
	b.open("/queue/pq/orders-dead/items")
	b.has(100, "#items tbody tr")
	step("the list of dead letters")
	b.search("", "X-Tenant: acme")
	b.until(`$("#items tbody tr")`)
	step("first match of one customer")
	b.seesIn("#items", fmt.Sprintf("%d items match", needles), "Looked at all")
	step("all matches")
	list := b.location()
	b.click("#items tbody th a")
	b.seesIn("#value", "order")
	step("one of them")
	b.open(list)
	b.click("[data-pick-match]")
	b.act("#bulk", "Redrive", needles, "redriven")
	step("all of them redriven")
	s.lengths("orders", needles)
}
