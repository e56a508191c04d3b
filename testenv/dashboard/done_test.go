package dashboard

import (
	"cmp"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// finish has a worker lease the first job of a queue, and finish it with a result.
func (s *system) finish(queue, result string) {
	s.t.Helper()
	d, err := s.client.PriorityQueue(queue).Lease(s.t.Context(), client.Holder("ann"))
	must(s.t, err)
	d.SetResult([]byte(result), "text/plain")
	must(s.t, d.Ack(s.t.Context()))
}

// The tab of finished jobs has their number, and lists them newest first. The page of one says who
// did it, how long that took and what it returned, and it can be run again.
func TestFinishedJobs(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	jobs := s.client.PriorityQueue("jobs")
	first := ""
	for _, value := range []string{"a", "b", "c"} {
		ack, err := jobs.Push(t.Context(), 5, []byte(value), client.Keep(time.Hour))
		must(t, err)
		first = cmp.Or(first, ack.ID)
		s.finish("jobs", "did "+value)
	}
	s.push("jobs", 5, "not begun")

	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items", `$("nav.tabs").innerText.includes("Finished 3")`)
	b.seesIn("#items", "not begun")
	b.press("nav.tabs", "Finished")
	b.has(3, "#items tbody tr")
	b.seesIn("#items", "The newest 3 jobs took")
	b.seesIn("#items tbody tr:first-child", "did c", "ann")

	b.press("#items", "The slowest of the newest 10,000")
	b.seesIn("#items", "the slowest first", "did a")

	// A job is found by its id from any page.
	b.open("/bridges")
	b.fill("#job", first)
	b.keys("\r")
	b.at("/queue/pq/jobs/item/" + first)
	b.seesIn("main", "did a", "text/plain", "Took", "Done by", "ann", "Kept until", "Deliveries")

	// It runs again, and is then a ready item and no finished job.
	b.press("main", "Run again…")
	b.press("#act", "Run 1 finished job again")
	b.seesIn("#act", "1 finished job will run again")
	s.lengths("jobs", 2)
	b.open("/queue/pq/jobs/items?state=done", `$("nav.tabs").innerText.includes("Finished 2")`)
	b.has(2, "#items tbody tr")
}
