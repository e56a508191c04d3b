package dashboard

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// manyItems are in one queue.
const manyItems = 1_000_000

// startBridge starts a bridge as a process of its own, with the store in a folder. kill ends it as
// a machine does that fails.
func (s *system) startBridge(program, folder string) (kill func()) {
	s.t.Helper()
	cmd := harness.Command(program)
	cmd.Env = append(environment(), "PQ_NATS_URL="+s.NATS.URL(), "PQ_HTTP_ADDR=off",
		"PQ_DATA_DIR="+folder)
	var log harness.Transcript
	cmd.Stdout, cmd.Stderr = &log, &log
	must(s.t, cmd.Start())

	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // fails only if it has exited
		_ = cmd.Wait()                          // says that it was killed
	})

	s.t.Cleanup(kill)
	testenv.Eventually(s.t, func() error {
		_, err := s.client.PriorityQueue("any").Len(s.t.Context())
		return err
	})

	return kill
}

// With 10,000 queues, and a queue of very many items, every page fits a desk and
// a phone. While the bridge is away, each says so and as of when it is, and goes on when it is
// back.
func TestKilledBridge(t *testing.T) {
	t.Parallel()

	program, err := build(t.TempDir(), "pqbridge")
	must(t, err)
	env := testenv.New(t, testenv.Options{Stopped: true})
	env.NATS.Start()
	env.Conn = env.Connect()
	s := systemIn(t, env, "--timeout", "10s") // what was asked of the bridge that is killed
	folder := t.TempDir()
	kill := s.startBridge(program, folder)

	s.haystack("events", manyItems)
	var pushing sync.WaitGroup

	for i := range 100 {
		pushing.Go(func() {
			for j := range 100 {
				name := fmt.Sprintf("queue-%04d", 100*i+j)
				_, err := s.client.PriorityQueue(name).Push(t.Context(), 0, []byte("x"))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}

	pushing.Wait()
	s.push("jobs", 0, "a", "b")
	s.bury("jobs", "out of paper")
	s.lease("jobs")
	nightly := client.Schedule{ID: "nightly", Cron: "0 3 * * *", Value: []byte("report")}
	_, err = s.client.PriorityQueue("jobs").SetSchedule(t.Context(), nightly)
	must(t, err)

	pages := map[string]string{
		"/":                      "10,002 queues",
		"/dead":                  "out of paper",
		"/busy":                  "1 item is leased",
		"/schedules":             "nightly",
		"/queue/pq/events":       "Ready\n",
		"/queue/pq/events/items": "Ready ",
		"/bridges":               "bridge",
	}

	tabs := map[string]*tab{}
	for path, sees := range pages {
		b := newTab(t, s.url)
		b.expect("status of 5")

		b.open(path)
		b.seesIn("main", sees)
		b.fits()
		tabs[path] = b
	}

	tabs["/schedules"].has(0, "progress")
	tabs["/"].has(100, "#rows tr")
	tabs["/"].press(".pager", "Next")
	tabs["/"].sees("queue-0150")

	kill()
	for path, b := range tabs {
		b.has(1, "#status.away")
		b.seesIn("main", pages[path])
		b.seesIn("#as-of", "as of ")
		b.fits()
	}

	late := newTab(t, s.url)
	late.expect("status of ")

	for _, path := range []string{
		"/queue/pq/absent", "/queue/pq/events/items", "/queue/pq/events/item/x",
	} {
		late.open(path)
		late.seesIn("#status", "no bridge answers")
		late.seesIn("main", "Not known.")
		late.seesIn("#as-of", "not known yet")
		late.fits()
	}

	s.startBridge(program, folder)
	for path, b := range tabs {
		b.has(1, "#status.connected")
		at := b.text("#as-of time")
		b.until(`$("#as-of time").innerText != ` + quoted(at))
		b.seesIn("main", pages[path])
	}
}

// fits fails the test if the page is wider than a desk or a phone.
func (b *tab) fits() {
	b.Helper()
	for _, width := range []int64{390, 1280} {
		b.resize(width, 740)
		if wide := b.isTooWide(); wide != "" {
			b.Errorf("%s at %d px is too wide: %s", b.location(), width, wide)
		}
	}
}
