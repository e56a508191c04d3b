package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

// keptDetails returns what the dashboard has kept of the queue jobs for its page.
func (r *rig) keptDetails() details {
	r.t.Helper()
	kept, _ := r.board.details.get(r.t.Context(), queueRef{"pq", "jobs"},
		func() (d details, err error) { return d, errAway }) // as if the bridge were away

	return kept
}

// Lists of schedules keep neither values nor headers, and nothing else that is long. The page of a
// queue has the next ones, and says that there are more.
func TestMemoryOfSchedules(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	const short = 200 // bytes of a cron expression at most, as kept

	// One more than the page of the queue shows. The last is due each hour, which is first.
	hourly := "0" + strings.Repeat(",0", 500) + " * * * *"

	for i := range pageRows + 1 {
		s := client.Schedule{
			ID:      fmt.Sprintf("s%03d", i),
			Cron:    "0 0 1 1 *", // once a year
			Value:   []byte("value"),
			Headers: map[string][]string{"X-A": {"1"}},
		}

		if i == pageRows {
			s.Cron = hourly
		}

		_, err := r.jobs.SetSchedule(context.Background(), s)
		must(t, err)
	}

	page := b.get("/queue/pq/jobs").wants(t, 200, "There are more, which fire later", "s100")
	b.sees("/schedules", "s100")

	if n := strings.Count(page.body, "Edit s"); n != pageRows {
		t.Errorf("%d schedules are on the page", n)
	}

	details := r.keptDetails()
	all, _ := r.board.schedules.look(context.Background())
	if len(details.Schedules) != pageRows || all.Count != pageRows+1 || all.More {
		t.Errorf("%d are kept of the queue, want %d; %d of all queues, want %d",
			len(details.Schedules), pageRows, all.Count, pageRows+1)
	}

	for _, row := range append(details.Schedules, all.Rows...) {
		if row.Value != nil || row.Headers != nil || len(row.Cron) > short {
			t.Errorf("%s is kept with the value %q, %v and the cron %.50q", row.ID, row.Value,
				row.Headers, row.Cron)
		}
	}
}

// The kept copies of a queue's next items have no headers, and the page of an item has as many
// bytes of them as it has of the value.
func TestMemoryOfHeaders(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()

	large := map[string][]string{
		"X-A": {"first"},
		"X-B": {"second", "third"},
		"X-Z": {strings.Repeat("z", itemBytes)},
	}

	for i := range 900 { // these sort behind X-B and before X-Z, about 120 bytes each
		large[fmt.Sprint("X-Many-", i)] = []string{"many" + strings.Repeat(" more", 20)}
	}

	ack, err := r.jobs.PushMsg(context.Background(), 5,
		client.Message{Value: []byte("hello"), Headers: large})
	must(t, err)

	b.get("/queue/pq/jobs").wants(t, 200, "hello")

	page := b.get("/queue/pq/jobs/item/"+ack.ID).wants(t, 200, "first", "third",
		"There are more headers")

	if head := r.keptDetails().Head; len(head) != 1 || head[0].Headers != nil {
		t.Errorf("the next items are kept as %+v", head)
	}

	// itemBytes are some 500 of them.
	n := strings.Count(page.body, ">many more")
	if n < 300 || n > 600 || strings.Contains(page.body, "zzzz") {
		t.Errorf("%d headers are on the page", n)
	}
}

// Of the info of all queues, only what tables show is kept, and whole infos of few.
func TestMemoryOfInfos(t *testing.T) {
	r := newRig(t, nil)
	r.push("a")

	_, err := r.jobs.Configure(context.Background(), client.Settings{
		DeadLetter:   "bin",
		PausedGroups: []string{"a", "b"},
		PauseUntil:   time.Now().Add(time.Hour),
	})
	must(t, err)
	l, ctx := r.board.monitor, context.Background()

	for i := range maxAnswers {
		_, err := l.ask(ctx, queueRef{"pq", fmt.Sprint("other", i)})
		must(t, err)
	}

	info, err := l.ask(ctx, queueRef{"pq", "jobs"})
	must(t, err)

	// The tables show numbers and the least priority. The item has priority 5.
	known := l.one(queueRef{"pq", "jobs"})
	if info.Ready != 1 || known.Ready != 1 || !known.Paused || known.PausedGroups != 2 ||
		*known.least != 5 || *known.Oldest < 0 {
		t.Errorf("known is %+v", known)
	}

	if n := len(l.asked.all); n > maxAnswers {
		t.Errorf("%d infos are kept, want at most %d", n, maxAnswers)
	}
}

// A ttlCache has no more answers than it may: one more drops all others, and another answer about a
// known key drops none.
func TestTTLCache(t *testing.T) {
	const most = 3
	c := ttlCache[int, int]{most: most} // no answer lasts, so that each get asks
	asked := 0

	get := func(key int) {
		_, _ = c.get(t.Context(), key, func() (int, error) {
			asked++
			return key, nil
		})
	}

	for key := range most {
		get(key)
		get(0)
	}
	if len(c.all) != most || asked != 2*most {
		t.Errorf("after %d answers, %d are kept, want %d", asked, len(c.all), most)
	}

	get(most)
	if len(c.all) != 1 {
		t.Errorf("after one more, %d are kept, want 1", len(c.all))
	}
}

// Ended searches make room once they have found much together, and their texts are short.
func TestMemoryOfSearches(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	q := queueRef{"pq", "jobs"}
	ids := make([]string, maxMatches)

	first := r.board.searches.addFound(q, itemsFilter{}, ids)
	for range keptMatches/maxMatches + 2 { // more than there is room for, with the first
		r.board.searches.addFound(q, itemsFilter{}, ids)
	}

	if _, err := r.board.searches.find(first.id, q); err == nil || len(r.board.searches.all) > 3 {
		t.Errorf("%d searches are kept, the first: %t", len(r.board.searches.all), err == nil)
	}

	b.post("/queue/pq/jobs/search", "match", strings.Repeat("x", maxFilter+1)).wants(t,
		http.StatusBadRequest, "want at most")
}

// Of what a bridge says, no more is kept than the pages show. Bridges that are gone make room for
// others.
func TestMemoryOfBridges(t *testing.T) {
	stats := micro.Stats{
		Endpoints:       []*micro.EndpointStats{{NumRequests: 3}},
		ServiceIdentity: micro.ServiceIdentity{Metadata: map[string]string{"store": "x"}},
	}

	said := func(id string) *discovery.Bridge {
		stats.ID = id
		queues := []subjects.QueueTraffic{counted("pq", "jobs", 1, 0)}

		return &discovery.Bridge{
			Stats:       stats,
			BridgeStats: &subjects.BridgeStats{Ready: true, Queues: queues},
		}
	}

	all, now := bridges{}, time.Now()

	for i := range maxBridges + 1 {
		all.note(now, said(fmt.Sprint(i)))
	}
	if len(all) != maxBridges {
		t.Errorf("%d bridges are kept", len(all))
	}

	all["7"].missed = maxMissed + 1 // it is gone
	all.note(now, said("another"))

	b := all["another"]
	if all["7"] != nil || b == nil || b.Requests != 3 || b.Endpoints != nil ||
		b.Metadata != nil || b.Queues != nil || len(b.counters) != 2 {
		t.Errorf("the newest is kept as %+v, the one that is gone as %+v", b, all["7"])
	}
}

// While browsers have not read many megabytes of pages, others are told to come later, and when,
// unless they have sent a form: what that did, they have to know.
func TestMemoryOfPages(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	b.get("/").wants(t, 200)

	// All that may be sent at a time is under way.
	r.board.sent.TryAcquire(maxSent)
	full := b.get("/")
	b.post("/queue/pq/jobs/push", "value", "x").wants(t, http.StatusOK, "pushed")

	r.board.sent.Release(maxSent)

	if full.wants(t, http.StatusServiceUnavailable, "try again").Header.Get("Retry-After") == "" {
		t.Error("the answer does not say when to come again")
	}
	b.get("/").wants(t, 200)

	if !r.board.sent.TryAcquire(maxSent) {
		t.Error("pages that were read still count")
	}
}
