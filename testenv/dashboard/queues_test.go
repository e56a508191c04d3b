package dashboard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// row is the row of a queue in the list, as JavaScript has it.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#rows tr")].find(r => r.querySelector("th a").innerText == %s)`, quoted(name))
}

// figures waits until the list shows these texts for a queue, by the classes of the cells.
func (b *tab) figures(name string, cells ...string) {
	b.Helper()
	for i := 0; i < len(cells); i += 2 {
		b.until(fmt.Sprintf("%s?.querySelector(%s).innerText.trim() == %s", row(name), quoted(cells[i]), quoted(cells[i+1])))
	}
}

// names returns those in the list, in its order.
func (b *tab) names() string {
	b.Helper()
	return eval[string](b, `[...document.querySelectorAll("#rows th a")].map(a => a.innerText).join(" ")`)
}

func TestQueues(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 1, "a", "b", "c")
	s.push("broken", 1, "d", "e")
	s.bury("broken", "out of paper")
	_, err := s.client.Queue("mail").Enqueue(t.Context(), []byte("dear all"))
	must(t, err)
	_, err = s.client.PriorityQueue("broken").Configure(t.Context(), client.Settings{PauseUntil: time.Now().Add(time.Hour)})
	must(t, err)
	_, err = s.client.PriorityQueue("jobs").LeaseMin(t.Context())
	must(t, err)

	b := newTab(t, s.url)
	b.open("/")
	b.sees("4 queues")
	b.figures("jobs", ".c-ready", "2", ".c-leased", "1", ".c-delayed", "0")
	b.figures("broken", ".c-ready", "1", ".c-dead", "1")
	b.figures("mail", ".c-ready", "1")
	b.until(row("broken") + `.innerText.includes("paused")`)
	b.until(row("mail") + `.innerText.includes("fifo")`)

	// It changes by itself, by at most a second, and a new queue appears.
	s.push("jobs", 2, "f")
	b.figures("jobs", ".c-ready", "3")
	s.push("another", 2, "g")
	b.figures("another", ".c-ready", "1")

	// So do ages, rates and lines.
	b.until(`/^[2-9]|^1\d/.test(` + row("mail") + `.querySelector(".c-oldest").innerText)`)
	b.figures("mail", ".c-in", "0")
	b.until(row("mail") + `.querySelector(".c-line polyline").getAttribute("points").split(" ").length > 2`)

	// Filters as one types, and keeps that while it changes.
	b.fill("#filter", "ANO")
	b.until(`document.querySelectorAll("#rows tr").length == 1`)
	b.sees("1 of 5 queues")
	s.push("another", 2, "h")
	b.figures("another", ".c-ready", "2")
	b.until(`location.search.includes("filter=ANO")`)
	b.fill("#filter", "nothing like it")
	b.sees("No queue of 5")
	b.fill("#filter", "")
	b.sees("5 queues")

	b.press("form.filter", "Fifo")
	b.until(`document.querySelectorAll("#rows tr").length == 1 && ` + row("mail"))
	b.press("form.filter", "All")
	b.has(5, "#rows tr")

	// Sorts by each column, both ways.
	b.press("thead", "Ready")
	b.until(`document.querySelector("th[aria-sort=descending], th[aria-sort=ascending]").innerText.startsWith("Ready")`)
	first := b.names()
	b.press("thead", "Ready")
	b.until(`[...document.querySelectorAll("#rows th a")].map(a => a.innerText).join(" ") != ` + quoted(first))

	b.press("#rows", "jobs")
	b.until(`location.pathname == "/queue/pq/jobs"`)
	b.seesIn("h1", "jobs")
}

// TestManyQueues: pages of them, and all can be filtered.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const n = 230
	for i := range n {
		s.push(fmt.Sprintf("queue-%03d", i), 0, "x")
	}
	b := newTab(t, s.url)
	b.open("/")
	b.sees("230 queues", "queue-000", "queue-099")
	b.has(100, "#rows tr")
	b.press(".pager", "Next")
	b.sees("queue-100", "queue-199")
	b.press(".pager", "Next")
	b.has(30, "#rows tr")
	s.push("queue-229", 0, "y")
	b.figures("queue-229", ".c-ready", "2")
	b.fill("#filter", "queue-00")
	b.has(10, "#rows tr")
}

func TestQueue(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 5, "five", "another five")
	s.push("jobs", -3, "minus three")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.seesIn("#totals", "Ready\n3")
	b.seesIn("#depth", "-3", "5")
	b.seesIn("#head", "minus three", "five")
	b.until(`document.querySelector(".chart canvas")`)

	s.push("jobs", 7, "later")
	b.seesIn("#totals", "Ready\n4")
	b.seesIn("#depth", "7")

	b.open("/queue/pq/absent")
	b.sees("neither items nor settings")
	s.push("absent", 0, "now it is there")
	b.seesIn("#totals", "Ready\n1")

	b.expect("status of 400")
	b.open("/queue/pq/..")
	b.open("/queue/pq/a%20b")
	b.sees("No queue")
	b.expect("status of 404")
	b.open("/queue/zz/jobs")
	b.sees("No queue")
	b.open("/nothing")
	b.sees("Not found")
}

func TestPushForm(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "<b>bold</b>")
	b.fill("#push [name=priority]", "-7")
	b.fill("#push [name=headers]", "X-Tenant: acme\nX-Kind: a: b")
	b.fill("#push [name=unique]", "one")
	b.press("#push", "Push")
	b.seesIn("#push", "ushed")
	item, err := s.client.PriorityQueue("jobs").PopMin(t.Context())
	must(t, err)
	if string(item.Value) != "<b>bold</b>" || item.Priority != -7 || item.Headers.Get("X-Tenant") != "acme" || item.Headers.Get("X-Kind") != "a: b" {
		t.Errorf("pushed %+v", item)
	}

	b.open("/queue/pq/jobs")
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "later")
	b.fill("#push [name=delay]", "1h")
	b.fill("#push [name=ttl]", "2h")
	b.press("#push", "Push")
	b.seesIn("#push", "ushed")
	s.lengths("jobs", 0, 0, 1)

	// What is wrong is said beside the field, and nothing is lost of what was typed.
	b.expect("status of 4")
	for _, wrong := range []struct{ field, text string }{
		{"priority", "high"}, {"priority", "9223372036854775808"}, {"delay", "soon"}, {"delay", "99999999h"}, {"ttl", "1ms"},
		{"headers", "no colon"}, {"headers", "Pq-Id: mine"},
	} {
		b.open("/queue/pq/jobs")
		b.press("#push", "Push an item")
		b.fill("#push [name=value]", "kept <&>")
		b.fill("#push [name=unique]", "kept")
		b.fill("#push [name="+wrong.field+"]", wrong.text)
		b.press("#push", "Push")
		b.until(`document.querySelector("#push .err")?.innerText.length > 0`)
		b.until(fmt.Sprintf(`document.querySelector("#push [name=value]").value == "kept <&>" && document.querySelector("#push [name=unique]").value == "kept" &&
			document.querySelector("#push [name=%s]").value == %s`, wrong.field, quoted(wrong.text)))
		b.until(fmt.Sprintf(`document.querySelector("#push [name=%s]").getAttribute("aria-invalid") == "true"`, wrong.field))
	}
	s.lengths("jobs", 0, 0, 1)
}

func TestSettingsForm(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "x")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.press("#settings", "Settings")
	b.fill("#set-max_deliver", "5")
	b.fill("#set-backoff", "1s,10s")
	b.press("#settings", "Save")
	b.until(`document.querySelector("#settings .done")`)
	set := s.settings("jobs")
	if set.MaxDeliver != 5 || len(set.Backoff) != 2 {
		t.Errorf("settings %+v", set)
	}

	b.open("/queue/pq/jobs")
	b.press("#settings", "Settings")
	b.until(`document.querySelector("#set-max_deliver").value == "5"`)
	b.fill("#set-max_deliver", "")
	b.press("#settings", "Save")
	b.until(`document.querySelector("#settings .done")`)
	if set := s.settings("jobs"); set.MaxDeliver != 0 || len(set.Backoff) != 2 {
		t.Errorf("settings %+v: want max_deliver reset", set)
	}

	// The bridge's text, and what was typed.
	_, want := s.client.PriorityQueue("jobs").Configure(t.Context(), client.Settings{MaxDeliver: 1 << 40})
	if want == nil {
		t.Fatal("max_deliver has no bound")
	}
	b.expect("status of 4")
	b.fill("#set-max_deliver", fmt.Sprint(int64(1)<<40))
	b.fill("#set-ack_wait", "7m")
	b.press("#settings", "Save")
	b.until(`document.querySelector("#settings .err")?.innerText.includes("max_deliver")`)
	b.until(fmt.Sprintf(`document.querySelector("#set-max_deliver").value == "%d" && document.querySelector("#set-ack_wait").value == "7m"`, int64(1)<<40))
	if set := s.settings("jobs"); set.AckWait != 0 {
		t.Errorf("settings %+v: want none of a refused change", set)
	}
}

func (s *system) settings(queue string) client.Settings {
	s.t.Helper()
	info, err := s.client.PriorityQueue(queue).Settings(s.t.Context())
	must(s.t, err)
	return info
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "x")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.fill("#pause [name=for]", "20m")
	b.press("#pause", "Pause")
	b.press("#pause", "Resume") // appears
	b.seesIn("#pause", "Pause for")
	if set := s.settings("jobs"); time.Until(set.PauseUntil) > 0 {
		t.Errorf("still paused until %v", set.PauseUntil)
	}
	b.fill("#pause [name=for]", "20m")
	b.press("#pause", "Pause")
	b.seesIn("#totals", "Paused")
	if left := time.Until(s.settings("jobs").PauseUntil); left < 19*time.Minute || left > 20*time.Minute {
		t.Errorf("paused for %v", left)
	}
	s.logged("pause", "jobs")

	// Somebody else resumes it: the page says so.
	_, err := s.client.PriorityQueue("jobs").Configure(t.Context(), client.Settings{}, "pause_until")
	must(t, err)
	b.until(`!document.querySelector("#totals").innerText.includes("Paused")`)

	b.expect("status of 4")
	b.open("/queue/pq/jobs")
	b.fill("#pause [name=for]", "a while")
	b.press("#pause", "Pause")
	b.until(`document.querySelector("#pause .err") && document.querySelector("#pause [name=for]").value == "a while"`)
}

func TestPurge(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a", "b", "c")
	_, err := s.client.PriorityQueue("jobs").Push(t.Context(), 0, []byte("d"), client.Delay(time.Hour))
	must(t, err)
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.press("#purge", "Purge")
	b.choose("#purge [name=state]", "ready")
	b.press("#purge form", "Purge…")
	b.seesIn("#act", "3 items")

	// The name has to be typed.
	b.expect("status of 4")
	b.fill("#act [name=name]", "jobz")
	b.press("#act", "Purge 3 items")
	b.until(`document.querySelector("#act .err")`)
	s.lengths("jobs", 3, 0, 1)
	b.fill("#act [name=name]", "jobs")
	b.press("#act", "Purge 3 items")
	b.seesIn("#act", "3 items purged")
	s.lengths("jobs", 0, 0, 1)
	s.logged("purge", "jobs", "3")
}

func TestBridges(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	second := s.StartBridge()
	second.WaitReady()
	b := newTab(t, s.url)
	b.open("/bridges")
	b.sees("2 bridges", "0.0.1")
	b.until(`[...document.querySelectorAll(".c-ok")].filter(c => c.innerText == "yes").length == 2`)
	must(t, second.Stop())
	b.seesIn("#bridges", "it does not answer")

	// A pop that waits is counted.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.client.PriorityQueue("jobs").PopMin(ctx, client.Expires(time.Hour))
	}()
	b.until(`document.querySelector("#bridges td.c-wait").innerText == "1"`)
	cancel()
	<-done
}

// TestTwoBrowsers: what one does, the other sees.
func TestTwoBrowsers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a", "b", "c")
	first, second := newTab(t, s.url), newTab(t, s.url)
	first.open("/queue/pq/jobs")
	second.open("/")
	second.figures("jobs", ".c-ready", "3")
	first.fill("#pause [name=for]", "1h")
	first.press("#pause", "Pause")
	second.until(row("jobs") + `.innerText.includes("paused")`)

	// Both select the same item; the second to act is told what became of it.
	first.open("/queue/pq/jobs/items")
	second.open("/queue/pq/jobs/items")
	id := s.ids("jobs")[0]
	for _, b := range []*tab{first, second} {
		b.click(`input[name=ids][value="` + id + `"]`)
		b.press("#bulk", "Remove")
		b.seesIn("#act", "1 item")
	}
	first.press("#act", "Remove 1 item")
	first.seesIn("#act", "1 item removed")
	second.press("#act", "Remove 1 item")
	second.seesIn("#act", "no such item")
	s.lengths("jobs", 2)
}

// TestHiddenTab: a page that nobody sees asks for nothing, and is right again when somebody does.
func TestHiddenTab(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a")
	b := newTab(t, s.url)
	b.open("/")
	b.figures("jobs", ".c-ready", "1")
	hide := func(state string) {
		eval[bool](b, fmt.Sprintf(`(() => {
			Object.defineProperty(document, "visibilityState", {value: %[1]q, configurable: true})
			Object.defineProperty(document, "hidden", {value: %[1]q == "hidden", configurable: true})
			return document.dispatchEvent(new Event("visibilitychange", {bubbles: true}))
		})()`, state))
	}
	eval[bool](b, `(() => { window.changes = 0; new MutationObserver(() => window.changes++).observe(document.querySelector("#rows"), {subtree: true, childList: true, characterData: true}); return true })()`)
	hide("hidden")
	s.push("jobs", 0, "b")

	// The visible tab of somebody else gets it, so it has been sent; this one does not.
	other := newTab(t, s.url)
	other.open("/")
	other.figures("jobs", ".c-ready", "2")
	s.push("jobs", 0, "c")
	other.figures("jobs", ".c-ready", "3")
	if n := eval[int](b, "window.changes"); n != 0 {
		t.Errorf("%d changes of a hidden page", n)
	}
	hide("visible")
	b.figures("jobs", ".c-ready", "3")
}

// TestOutage: bridge and NATS go away and come back, and the page says so.
func TestOutage(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "typed before")

	must(t, s.Bridge.Stop())
	b.until(`document.querySelector("#status").className == "away"`)
	b.expect("status of 5")
	b.press("#push", "Push")
	b.until(`document.querySelector("#push .err")?.innerText.length > 0 && document.querySelector("#push [name=value]").value == "typed before"`)

	s.NATS.Stop()
	if reply, _ := s.send(s.request("GET", "/readyz", "")); reply.StatusCode != 503 {
		testenv.Eventually(t, func() error {
			if reply, _ := s.send(s.request("GET", "/readyz", "")); reply.StatusCode != 503 {
				return fmt.Errorf("/readyz: %d", reply.StatusCode)
			}
			return nil
		})
	}
	c := newTab(t, s.url)
	c.expect("status of 5")
	c.open("/") // a page without NATS
	c.until(`document.querySelector("#status").className == "away"`)

	s.NATS.Start()
	s.StartBridge().WaitReady()
	b.until(`document.querySelector("#status").className == "live"`)
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push")
	b.seesIn("#push", "ushed")
	s.lengths("jobs", 2)
	c.figures("jobs", ".c-ready", "2")
}

// TestDashboardComesBack: the process of the dashboard is started again, and open pages go on.
func TestDashboardComesBack(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a")
	b := newTab(t, s.url)
	b.expect("ERR_CONNECTION_REFUSED")
	b.expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
	b.open("/")
	b.figures("jobs", ".c-ready", "1")
	s.stop()
	b.until(`document.querySelector("#status").className != "live"`)
	s.push("jobs", 0, "b")
	again := startDashboard(t, "--server", s.NATS.URL(), "--listen", strings.TrimPrefix(s.url, "http://"))
	if again.url != s.url {
		t.Fatalf("%s, and before %s", again.url, s.url)
	}
	b.figures("jobs", ".c-ready", "2")
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "first", "second", "third")
	s.push("later", 0, "x")
	b := newTab(t, s.url)
	b.open("/")
	b.figures("later", ".c-ready", "1")
	b.keys("?")
	b.until(`document.querySelector("#keys").open`)
	b.keys("\x1b")
	b.until(`!document.querySelector("#keys").open`)
	b.keys("/")
	b.until(`document.activeElement.id == "filter"`)
	b.keys("jo")
	b.has(1, "#rows tr")
	b.keys("\x1b")
	b.keys("j")
	b.keys("\r")
	b.at("/queue/pq/jobs")
	b.open("/queue/pq/jobs/items")
	b.keys("j")
	b.keys("x")
	b.keys("j")
	b.keys("x")
	b.until(`document.querySelectorAll("[name=ids]:checked").length == 2`)
	b.keys("*")
	b.until(`document.querySelectorAll("[name=ids]:checked").length == 3`)
	b.keys("\r")
	b.until(`location.pathname.includes("/item/")`)
	b.seesIn("#value", "second")
	b.until(`document.readyState == "complete"`)
	b.keys("u")
	b.at("/queue/pq/jobs/items")
	b.keys("gb")
	b.at("/bridges")
	b.keys("gd")
	b.at("/dead")
	b.keys("gq")
	b.at("/")
}
