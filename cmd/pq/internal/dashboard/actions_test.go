package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A push does as the form says. An error stands beside its field, and nothing typed is lost.
func TestPush(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	b.get("/queue/pq/jobs")

	const path = "/queue/pq/jobs/push"
	b.post(path, "value", "a\r\nb", "priority", "-7", "headers", "X-Tenant: acme\r\nX-Tenant: "+
		"other\r\n", "ttl", "1h", "unique", "k", "group", "tenant 7").wants(t, 200, "pushed ")

	item, err := r.jobs.Pop(context.Background())
	must(t, err)
	if string(item.Value) != "a\nb" || item.Priority != -7 ||
		fmt.Sprint(item.Headers["X-Tenant"]) != "[acme other]" || item.Unique != "k" ||
		item.Group != "tenant 7" {
		t.Errorf("pushed %q, %d, %v", item.Value, item.Priority, item.Headers)
	}

	b.post(path, "value", "later", "delay", "1h", "msg_id", "m").wants(t, 200, "pushed ")
	b.post(path, "value", "later", "delay", "1h", "msg_id", "m").wants(t, 200, "a duplicate")

	if i := r.info(); i.Delayed != 1 || i.Ready != 0 {
		t.Errorf("%+v", i)
	}

	for name, value := range map[string]string{
		"headers ": "Pq-Id: mine",
		"priority": "1.5",
		"delay":    "soon",
		"ttl":      "1ms",
		"unique":   strings.Repeat("u", 600),
		"keep":     "1y",
		"headers":  "no colon",
		"msg_id":   strings.Repeat("m", 600),
	} {
		name = strings.TrimSpace(name) // a second one of headers
		a := b.post(path, "value", "typed value", name, value).wants(t, 400, "typed value", value)
		if regexp.MustCompile(`name="`+name+`"[^>]*aria-invalid="true" aria-describedby="err-`+name+
			`"(?s:.*)<span class="err" id="err-`+name+`"`).FindString(a.body) == "" {
			t.Errorf("%s is not marked: %s", name, a.body)
		}
	}
	b.post("/queue/q/mail/push", "value", "x").wants(t, 200, "pushed ")

	n, err := client.New(
		r.Conn, client.WithTimeout(testenv.Patience),
	).FIFOQueue("mail").Len(context.Background())
	if n != 1 || err != nil {
		t.Errorf("%d items, %v", n, err)
	}

	if !strings.Contains(r.log.String(), "action=push queue=pq.jobs") {
		t.Errorf("logged %s", r.log)
	}
}

// Settings change as typed, and the bridge's words stand beside the wrong ones. One of them pauses
// pops.
func TestSettings(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	b.get("/queue/pq/jobs")

	b.save("ack_wait", "2m", "backoff", "1s,10s", "max_deliver", "5", "ttl", "", "discard",
		"old").wants(t, 200, "changed")
	if s := r.info().Settings; s.AckWait != 2*time.Minute || len(s.Backoff) != 2 ||
		s.MaxDeliver != 5 || s.Discard != "old" {
		t.Errorf("%+v", s)
	}
	b.save("max_deliver", "").wants(t, 200, "changed")

	if s := r.info().Settings; s.MaxDeliver != 0 || s.AckWait != 2*time.Minute {
		t.Errorf("%+v", s)
	}
	b.save("ack_wait", "2m0s").wants(t, 200, "nothing to change")

	b.save("ack_wait", "1ms", "max_items", "many", "ttl", "90s").wants(t, 400,
		"want 100ms to 12h0m0s", "want an integer", `value="90s"`, `value="many"`)
	b.save("dead_letter", "not a name").wants(t, 400, "dead_letter: ", `value="not a name"`)
	b.save("dead_letter", "jobs").wants(t, 400, `value="jobs"`) // which only the bridge refuses

	if s := r.info().Settings; s.TTL != 0 || s.AckWait != 2*time.Minute {
		t.Errorf("%+v", s)
	}

	b.post("/queue/pq/jobs/pause", "for", "soon").wants(t, 400, "soon", "want a duration")
	b.post("/queue/pq/jobs/pause", "for", "0s").wants(t, 400, "above zero")
	b.post("/queue/pq/jobs/pause", "for", "10m").wants(t, 200, "Resume",
		"Paused: nothing is served.")

	left := time.Until(r.info().Settings.PauseUntil)
	if left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("paused for %v", left)
	}
	b.post("/queue/pq/jobs/pause", "for", "").wants(t, 200)
	if !r.info().Settings.PauseUntil.Equal(target.Forever) {
		t.Error("not paused until resumed")
	}
	b.post("/queue/pq/jobs/resume").wants(t, 200)
	if !r.info().Settings.PauseUntil.IsZero() {
		t.Error("still paused")
	}

	b.post("/queue/pq/jobs/push", "value", "of the paused", "group",
		"acme & co").wants(t, 200, "pushed ")
	b.post("/queue/pq/jobs/push", "value", "of nobody").wants(t, 200, "pushed ")

	b.sees("/queue/pq/jobs", "of the paused", "of nobody", `<option value="acme &amp; co">`,
		"Pause<span")
	b.post("/queue/pq/jobs/pause", "group", " acme & co ").wants(t, 200,
		"acme &amp; co</bdi> is passed over", "/resume").lacks(t, "No item of this group")
	b.post("/queue/pq/jobs/pause", "group", "b").wants(t, 200,
		"b</bdi> is passed over. <span class=\"hint\">No item of this group")
	b.get("/").wants(t, 200, "2 groups paused")

	b.get("/queue/pq/jobs").wants(
		t,
		200,
		"(paused)",
		"At a limit or paused: 1 of the groups",
		`value="acme &amp; co,b"`,
		"of nobody",
		"passed over: <bdi>acme &amp; co</bdi>, <bdi>b</bdi>",
		"Resume<span",
	).lacks(t, "of the paused")
	b.post("/queue/pq/jobs/pause", "group", " ").wants(t, 400, "want 1 to 128 bytes")

	b.post("/queue/pq/jobs/resume", "group",
		"acme & co").wants(t, 200).lacks(t, "co</bdi> is passed over")
	if paused := r.info().Settings.PausedGroups; fmt.Sprint(paused) != "[b]" {
		t.Errorf("paused %q", paused)
	}
}

// A form changes the edited fields, and nothing that others have changed since it was rendered.
func TestSettingsOfOthers(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	_, err := r.jobs.Configure(ctx,
		client.Settings{PausedGroups: []string{"acme"}, Source: `{"stream":"ORDERS","filter":"a"}`})
	must(t, err)

	b := r.browser()
	const path = "/queue/pq/jobs/config"
	page := b.get("/queue/pq/jobs").wants(t, 200, `value="ORDERS"`)

	_, err = r.jobs.ChangeSettings(ctx, &subjects.Change{
		Groups:   map[string]bool{"globex": true},
		Settings: client.Settings{TTL: 2 * time.Hour, MaxDeliver: 3},
	})
	must(t, err)
	b.post(path, page.edited()...).wants(t, 200, "nothing to change")

	wrong := b.post(path, page.edited("max_deliver", "many")...).wants(t, 400, `value="many"`,
		`value="2h0m0s"`)
	b.post(path, wrong.edited("max_deliver", "9")...).wants(t, 200, "changed")
	b.post(path, page.edited("max_deliver", "8")...).wants(t, 200, "changed") // the last one counts

	if s := r.info().Settings; s.MaxDeliver != 8 || s.TTL != 2*time.Hour ||
		fmt.Sprint(s.PausedGroups) != "[acme globex]" {
		t.Errorf("%+v", s)
	}
	if log := r.log.String(); !strings.Contains(log, `change="{\"max_deliver\":9}"`) {
		t.Errorf("logged %s", log)
	}

	_, err = r.jobs.Configure(ctx, client.Settings{Source: `{"stream":"ORDERS","filter":"b"}`})
	must(t, err)
	b.post(path, page.edited("source.group", "token 2")...).wants(t, 200, "changed")

	if s := r.info().Settings.Source; !strings.Contains(s, `"filter":"b"`) ||
		!strings.Contains(s, `"group":{"token":2}`) {
		t.Errorf("source %s", s)
	}

	// A program that posts no former values sets what it fills in.
	b.post(path, "max_deliver", "7", "ttl", "").wants(t, 200, "changed")
	if s := r.info().Settings; s.MaxDeliver != 7 || s.TTL == 0 {
		t.Errorf("%+v", s)
	}
}

// A source is set and changed in fields of its own, and an error stands beside its field.
func TestSourceSetting(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()

	fields := func(changed ...string) []string {
		return append(changed, "source.stream", "", "source.filter", "", "source.domain", "",
			"source.priority", "", "source.group", "", "source.start", "", "source.on_bad", "",
			"source.when_full", "")
	}

	source := func(want string) {
		t.Helper()
		if got := r.info().Settings.Source; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	b.save(fields("max_deliver", "3")...).wants(t, 200, "changed")

	source("")
	all := []string{
		"source.stream", "ORDERS", "source.filter", "orders.>", "source.priority",
		"header X-Urgency", "source.group", "token 2", "source.start", "17", "source.on_bad",
		"stop", "source.when_full", "wait",
	}
	b.save(fields(all...)...).wants(t, 200, "changed")

	source(`{"filter":"orders.>","group":{"token":2},"on_bad":"stop",` +
		`"priority":{"header":"X-Urgency"},"start":17,"stream":"ORDERS","when_full":"wait"}`)
	b.get("/queue/pq/jobs").wants(t, 200, `value="orders.&gt;"`, `value="header X-Urgency"`,
		`value="token 2"`, `value="17"`, "<option selected>stop")
	b.save(fields(all...)...).wants(t, 200, "nothing to change")

	for name, text := range map[string]string{
		"stream":   "a.b",
		"filter":   "a..b",
		"domain":   "a.b",
		"priority": "high",
		"group":    "5",
		"start":    "soon",
		"on_bad":   "explode",
		"stream ":  "",
	} {
		name = strings.TrimSpace(name)
		a := b.save(fields("source."+name, text, "source.stream", "ORDERS", "source.filter",
			"x")...).wants(t, 400)

		mark := `id="set-source.` + name + `"[^>]*aria-invalid`
		if name != "on_bad" && !regexp.MustCompile(mark).MatchString(a.body) {
			t.Errorf("%s %q is not marked: %s", name, text, a.mainText())
		}
	}
	b.save(fields("source.stream", "ORDERS", "source.priority", "-5", "source.start",
		"new")...).wants(t, 200, "changed")

	source(`{"priority":-5,"start":"new","stream":"ORDERS"}`)
	b.save(fields()...).wants(t, 200, "changed")

	source("")
}

// A purge says how many items it is about, and wants the name of the queue.
func TestPurge(t *testing.T) {
	r := newRig(t, nil)
	r.push("a", "b", "c")
	b := r.browser()
	b.get("/queue/pq/jobs")

	const path = "/queue/pq/jobs/purge"
	b.post(path, "dry", "1").wants(t, 200, "3")
	b.post(path, "name", "job").wants(t, 400, "want the name of the queue: jobs", `value="job"`)
	b.post(path, "name", "jobs", "state", "none").wants(t, 400)

	if n := r.info().Ready; n != 3 {
		t.Fatalf("%d items are left", n)
	}
	b.post(path, "name", "jobs", "state", "delayed").wants(t, 200)

	if n := r.info().Ready; n != 3 {
		t.Fatalf("%d items are left", n)
	}
	b.post(path, "name", "jobs").wants(t, 200)

	if n := r.info().Ready; n != 0 {
		t.Errorf("%d items are left", n)
	}

	stats, err := r.Conn.Request(discovery.StatsSubject, []byte(subjects.StatsOfQueues),
		testenv.Patience)
	must(t, err)
	said, err := subjects.ParseBridgeStats(stats.Data)
	if err != nil || len(said.Queues) != 1 || said.Queues[0].In != 3 || said.Queues[0].Out != 0 {
		t.Errorf("what was purged counts as popped: %+v, %v", said, err)
	}
	if !strings.Contains(r.log.String(), "action=purge queue=pq.jobs") ||
		!strings.Contains(r.log.String(), "done=3") {
		t.Errorf("logged %s", r.log)
	}
}

// Actions on items that were selected: the dry run changes nothing, and each item has its result.
func TestActionsOnItems(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	ids := r.push("first", "second", "third", "fourth")

	b := r.browser()
	b.get("/queue/pq/jobs/items").wants(t, 200, "first", "fourth")

	b.post("/queue/pq/jobs/remove").wants(t, 400, errNothing.Error())
	b.post("/queue/pq/jobs/remove", "ids", "no id").wants(t, 400, "no id")
	b.post("/queue/pq/jobs/remove", "ids", ids[0], "ids", ids[1], "dry", "1").wants(t, 200, "first",
		"second", ids[0])

	if n := r.info().Ready; n != 4 {
		t.Fatalf("%d items are left", n)
	}
	must(t, r.jobs.Remove(ctx, ids[1]))
	b.post("/queue/pq/jobs/remove", "ids", ids[0], "ids",
		ids[1]).wants(t, 200, "<p>1: no such item</p>")
	b.post("/queue/pq/jobs/remove", "ids", ids[0], "ids",
		ids[1]).wants(t, 200, "<p>2: no such item</p>")

	if n := r.info().Ready; n != 2 {
		t.Fatalf("%d items are left", n)
	}

	b.post("/queue/pq/jobs/move", "ids", ids[2], "dry", "1").wants(t, 200, `name="priority"`,
		"The smallest of a ready item here is 5.")
	b.post("/queue/pq/jobs/move", "ids", ids[2], "priority", "up").wants(t, 400, `value="up"`)
	b.post("/queue/pq/jobs/move", "ids", ids[2], "priority", "-3").wants(t, 200,
		"1 item moved to priority -3")
	b.get("/queue/pq/jobs/item/"+ids[2]).wants(t, 200, "third", "<dd>-3")
	b.post("/queue/q/jobs/move", "ids", ids[2], "priority", "-3").wants(t, 400)
	b.post("/queue/pq/jobs/move", "ids", ids[2], "priority", "9").wants(t, 200, // sent again
		"0 items", `<p>1: no such item</p>`, "/item/"+ids[2])

	item, err := r.jobs.Peek(ctx)
	must(t, err)
	if string(item.Value) != "third" || item.Priority != -3 {
		t.Errorf("%q has priority %d", item.Value, item.Priority)
	}

	leased, err := r.jobs.Lease(ctx)
	must(t, err)
	b.post("/queue/pq/jobs/release", "ids", leased.ID, "ids", ids[3]).wants(t, 200, "not leased")

	if i := r.info(); i.Leased != 0 || i.Ready != 2 {
		t.Errorf("%+v", i)
	}
	b.get("/queue/pq/jobs/item/"+ids[3]).wants(t, 200, "fourth")
	b.get("/queue/pq/jobs/item/"+ids[0]).wants(t, 404,
		"No job with this id is in jobs or its dead letters: it was done and not kept")
	b.get("/queue/pq/jobs/item/none").wants(t, 400, "This is not the id of a job.")
	b.get("/queue/x/jobs").wants(t, 404)
	b.get("/queue/pq/"+url.PathEscape("a b")).wants(t, 404)
	if !strings.Contains(r.log.String(), "action=remove queue=pq.jobs") ||
		!strings.Contains(r.log.String(), "items=2 done=1") ||
		!strings.Contains(r.log.String(), "done=1 priority=-3") {
		t.Errorf("logged %s", r.log)
	}
}

// Dead letters are counted by cause, without what differs between them, and all of one cause are
// redriven or removed.
func TestDeadLetters(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	r.push("one", "two", "three", "four")

	for _, reason := range []string{"no user 17", "no user 4", "broken", "too late"} {
		d, err := r.jobs.Lease(ctx)
		must(t, err)
		must(t, d.Term(ctx, reason))
	}

	b := r.browser()
	// The page asks for itself again, so it soon knows them, though nobody has looked at the queues
	// before.
	counted := func(words ...string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			r.board.dead.expire()
			page := b.get("/dead")

			for _, word := range words {
				if page.StatusCode != http.StatusOK || strings.Contains(page.body, "<progress") ||
					!strings.Contains(page.body, word) {
					return fmt.Errorf(
						"it still counts, or has counted before they died, without %s", word)
				}
			}

			return nil
		})
	}

	counted("no user *", "broken", "too late", "/queue/pq/jobs-dead/redrive", `>2</td>`)

	b.get("/dead").wants(t, 200,
		`<a href="/queue/pq/jobs-dead/items?cause=no&#43;user&#43;%2A"><bdi>no user *</bdi></a>`)

	found := b.get("/queue/pq/jobs-dead/items?cause=no+user+*").wants(t, 303).Header.Get("Location")
	_, search, _ := strings.Cut(found, "search=")
	b.sees(found, "one", "two", "no user *", `class="c-tries ">1</td>`, "data-pick-match checked",
		`href="/dead" data-up`).lacks(t, "three")
	item := regexp.MustCompile(
		`href="(/queue/pq/jobs-dead/item/[^"?]+)`).FindStringSubmatch(b.get(found).body)[1]
	page := b.get(item).wants(t, 200, `href="/queue/pq/jobs-dead/items?cause=no&#43;user&#43;%2A"`)

	// Is said once, in words.
	for _, fact := range []string{"no user 17", "max_deliver", "Pq-Dead-"} {
		if n := strings.Count(page.mainText(), fact); n > 1 || fact == "Pq-Dead-" && n > 0 {
			t.Errorf("the page of a dead letter says %s %d times: %s", fact, n, page.mainText())
		}
	}

	page.lacks(t, "Served after", "<dt>State</dt>", "To the front")
	b.get("/queue/pq/jobs-dead/items?cause=other").wants(t, 400, errNoCause.Error())
	b.post("/queue/pq/other/redrive", "search", search).wants(t, 400, errNoSearch.Error())
	b.get("/queue/pq/jobs-dead/items?header="+
		url.QueryEscape("Pq-Dead-Reason: broken")).wants(t, 200, "three")

	asked := b.post("/queue/pq/jobs-dead/redrive", "cause", "no user *", "dry", "1", "back",
		"/dead").wants(t, 200, "Redrive 2 items", "one")
	kept := regexp.MustCompile(`name="search" value="(\w+)"`).FindStringSubmatch(asked.body)
	b.post("/queue/pq/jobs-dead/redrive", "search", kept[1], "count", "2", "back", "/dead").wants(t,
		200, "2 items redriven", `href="/dead"`)
	b.post("/queue/pq/jobs-dead/remove", "cause", "too late").wants(t, 200, "1 item removed")
	b.post("/queue/pq/jobs-dead/remove", "cause", "none").wants(t, 400, errNoCause.Error())

	if n := r.info().Ready; n != 2 {
		t.Errorf("%d items are home", n)
	}

	counted("broken", "1 dead letter")
	b.get("/queue/pq/jobs-dead").wants(t, 200, `href="/dead" aria-current="page"`, ">By cause<")

	none := b.post("/queue/pq/jobs/search", "match", "three").wants(t, 303).Header.Get("Location")
	b.sees(none, "Nothing matches.", "/queue/pq/jobs-dead/search", `name="match" value="three"`,
		"Search its 1 dead letters")
	if page := b.get("/dead"); strings.Contains(page.body, "no user") ||
		strings.Contains(page.body, "too late") {
		t.Errorf("still there: %s", page.mainText())
	}
}

// A search goes through the whole queue, can be stopped, and all that it found can be acted on.
func TestSearch(t *testing.T) {
	r := newRig(t, nil)
	for i := range 30 {
		r.push(fmt.Sprintf("number %d of %s", i, []string{"acme", "other", "third"}[i%3]))
	}

	b := r.browser()
	b.get("/queue/pq/jobs/items")
	a := b.post("/queue/pq/jobs/search", "match", "of acme").wants(t, http.StatusSeeOther)
	found := a.Header.Get("Location")
	b.sees(found, "number 27 of acme").lacks(t, "of other")

	_, id, _ := strings.Cut(found, "search=")
	b.post("/queue/pq/jobs/stop/"+id).wants(t, http.StatusSeeOther)
	b.post("/queue/pq/jobs/remove", "search", id, "dry", "1").wants(t, 200, "10")
	b.post("/queue/pq/jobs/remove", "search", id).wants(t, 200, "10")

	if n := r.info().Ready; n != 20 {
		t.Errorf("%d items are left", n)
	}

	b.get(found).lacks(t, "number 27")

	b.post("/queue/x/jobs/search").wants(t, 404)

	b.post("/queue/pq/jobs/search", "header",
		"no colon").wants(t, 400, `value="no colon"`).lacks(t, "No items here")
	b.get("/queue/pq/jobs/items?search=none").wants(t, 404)
	b.get("/queue/pq/jobs/items?match="+strings.Repeat("x", 300)).wants(t, 400, "want at most 256")
}

// Searches are bounded, and ended ones make room.
func TestSearchLimits(t *testing.T) {
	r := newRig(t, nil)
	s := r.board.searches
	q := queueRef{"pq", "jobs"}

	for range keptSearches + 20 {
		testenv.Eventually(t, func() error {
			_, err := s.start(q, itemsFilter{Match: "x"}, client.ItemsOptions{Match: "x"}, 0)
			return err
		})
	}

	s.work.Wait()
	if n := len(s.all); n > keptSearches {
		t.Errorf("%d searches are kept", n)
	}

	s.running = maxSearches
	b := r.browser()
	b.get("/queue/pq/jobs/items")

	b.post("/queue/pq/jobs/search", "match", "typed").wants(t, 400, "too many searches",
		`value="typed"`)
}

// A value is downloaded as it is, and never as a page.
func TestDownload(t *testing.T) {
	r := newRig(t, nil)
	value := "<script>alert(1)</script>\x00\xff"
	id := r.push(value)[0]
	b := r.browser()
	a := b.get("/queue/pq/jobs/item/"+id+"/value").wants(t, 200)

	h := a.Header
	if a.body != value || h.Get("Content-Type") != "application/octet-stream" ||
		h.Get("Content-Disposition") != `attachment; filename="`+id+`.bin"` {
		t.Errorf("%q, %v", a.body, h)
	}

	b.get("/queue/pq/jobs/item/"+id).wants(t, 200).lacks(t, "<script>alert")
	b.get("/queue/pq/jobs/item/"+id+"x/value").wants(t, 400)
}

// A value as large as NATS lets one be is pushed, and a larger one is refused with all that was
// typed.
func TestLargeValues(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	b.get("/queue/pq/jobs")

	large := strings.Repeat("é<&", 250_000) // 1,000,000 bytes
	b.post("/queue/pq/jobs/push", "value", large).wants(t, 200, "pushed ")

	item, err := r.jobs.Pop(context.Background())
	must(t, err)
	id := r.push(large)[0]
	if a := b.get("/queue/pq/jobs/item/" + id + "/value"); a.body != large ||
		string(item.Value) != large {
		t.Errorf("pushed %d bytes, downloaded %d", len(item.Value), len(a.body))
	}

	a := b.post("/queue/pq/jobs/push", "value", strings.Repeat("x", 1_500_000), "priority", "77")
	if a.StatusCode != 413 || !strings.Contains(a.body, `value="77"`) ||
		!strings.Contains(a.body, "xxxxxxxxxx") {
		t.Errorf("one and a half million bytes: %d", a.StatusCode)
	}

	_, err = r.jobs.Configure(context.Background(), client.Settings{MaxBytes: 1_900_000})
	must(t, err)
	b.post("/queue/pq/jobs/push", "value", large).wants(t, 429, "the queue is full")

	_, err = r.jobs.Configure(context.Background(), client.Settings{MaxBytes: 100})
	must(t, err)
	b.post("/queue/pq/jobs/push", "value", strings.Repeat("x", 101)).wants(t, 413,
		"max_bytes of the queue is 100")
}

// Hidden values are nowhere: not on a page, not in a file, and nobody can find them out by
// searching.
func TestHiddenValues(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HideValues = true })
	ack, err := r.jobs.PushMsg(context.Background(), 5, client.Message{
		Value:   []byte("swordfish"),
		Headers: map[string][]string{"X-Key": {"sesame"}},
	})
	must(t, err)

	b := r.browser()
	for _, path := range []string{
		"/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/" + ack.ID,
		"/queue/pq/jobs/item/" + ack.ID + "?as=hex", "/queue/pq/jobs/items?match=sword",
	} {
		b.get(path).lacks(t, "swordfish", "sesame", "73 77 6f")
	}
	b.get("/queue/pq/jobs/item/"+ack.ID+"/value").wants(t, 403)

	b.get("/queue/pq/jobs/items?header=X-Key:sesame").wants(t, 200, "hidden here").lacks(t, ack.ID)
	b.post("/queue/pq/jobs/search", "match", "sword").wants(t, 400, "hidden here")

	b.post("/queue/pq/jobs/remove", "ids", ack.ID, "dry",
		"1").wants(t, 200).lacks(t, "swordfish", "sesame")
}
