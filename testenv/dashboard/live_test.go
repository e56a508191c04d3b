package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/pqbridge/pqbridge/testenv"
)

// TestPace: a page gets at most one change a second, however much happens.
func TestPace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	s.push("jobs", 0, "x")
	b := newTab(t, s.url)
	b.open("/")
	b.figures("jobs", ".c-ready", "1")
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				_ = s.Conn.Publish("pq.jobs.push", fmt.Append(nil, i)) // nobody waits for the answer
				_ = s.Conn.Flush()
			}
		}
	}()
	took := eval[float64](b, `new Promise(done => {
		const events = new EventSource(document.querySelector("[data-events]").dataset.events)
		let first, n = 0
		events.addEventListener("patch", () => {
			first ??= performance.now()
			if (n++ == 4) { events.close(); done(performance.now() - first) }
		})
	})`)
	// With the totals, the row of the queue changes, each second.
	ready := `Number(` + row("jobs") + `.querySelector(".c-ready").innerText.replaceAll(",", ""))`
	for range 3 {
		b.until(fmt.Sprintf("%s > %d", ready, eval[int](b, ready)))
	}
	close(stop)
	<-done
	if took < 3000 { // the first one is at once
		t.Errorf("four changes within %v ms", took)
	}
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

// TestFilterWhileItChanges: the table changes by itself just before the answer to a filter arrives, which counts.
func TestFilterWhileItChanges(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a")
	s.push("another", 0, "b")
	b := newTab(t, s.url)
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		const Source = EventSource
		window.streams = []
		window.EventSource = class extends Source { constructor(url) { super(url); streams.push(this) } }`})
	b.open("/")
	b.has(2, "#rows tr")
	eval[bool](b, `(() => {
		document.addEventListener("htmx:beforeOnLoad", () =>
			streams.at(-1).dispatchEvent(new MessageEvent("patch", {data: document.querySelector("#queues").outerHTML})), {once: true})
		return true
	})()`)
	b.fill("#filter", "ano")
	b.has(1, "#rows tr")
	s.push("another", 0, "c")
	b.figures("another", ".c-ready", "2")
}
