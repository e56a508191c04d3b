package dashboard

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// TestTwoBrowsers: what one does, the other sees.
func TestTwoBrowsers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a", "b", "c")
	first, second := newTab(t, s.url), newTab(t, s.url)
	first.open("/queue/pq/jobs", `$("#pause form")`)
	second.open("/")
	second.figures("jobs", ".c-ready", "3")
	first.fill("#pause [name=for]", "1h")
	first.press("#pause", "Pause")
	second.until(row("jobs") + `.innerText.includes("paused")`)

	// Both select the same item; the second to act is told what became of it.
	id := s.ids("jobs")[0]
	for _, b := range []*tab{first, second} {
		b.open("/queue/pq/jobs/items", `$("#bulk .acts button")`)
		b.click(`input[name=ids][value="` + id + `"]`)
		b.press("#bulk", "Remove…")
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
		b.do(fmt.Sprintf(`
			Object.defineProperty(document, "visibilityState", {value: %[1]q, configurable: true})
			Object.defineProperty(document, "hidden", {value: %[1]q == "hidden", configurable: true})
			document.dispatchEvent(new Event("visibilitychange", {bubbles: true}))
			window.changes = 0
			new MutationObserver(() => window.changes++)
				.observe($("#rows"), {subtree: true, childList: true, characterData: true})`, state))
	}
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
	b.open("/queue/pq/jobs", `$("#push form")`)
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "typed before")

	must(t, s.Bridge.Stop())
	b.has(1, "#status.away")
	b.expect("status of 5")
	b.press("#push", "Push")
	b.refuses("#push", map[string]string{"value": "typed before"})

	s.NATS.Stop()
	testenv.Eventually(t, func() error {
		if reply, _ := s.send("GET", "/readyz", ""); reply.StatusCode != 503 {
			return fmt.Errorf("/readyz: %d", reply.StatusCode)
		}
		return nil
	})
	c := newTab(t, s.url)
	c.expect("status of 5")
	c.open("/") // a page without NATS
	c.has(1, "#status.away")

	s.NATS.Start()
	s.StartBridge().WaitReady()
	b.has(1, "#status.live")
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push")
	b.seesIn("#push", "ushed")
	s.lengths("jobs", 2)
	c.figures("jobs", ".c-ready", "2")
}

// TestDashboardComesBack: the process of the dashboard is started again, and open pages go on.
func TestDashboardComesBack(t *testing.T) {
	t.Parallel()
	listen := []string{"--listen", fmt.Sprintf("127.0.0.1:%d", harness.Port(t))}
	s := newSystem(t, listen...)
	s.push("jobs", 0, "a")
	b := newTab(t, s.url)
	b.expect("ERR_CONNECTION_REFUSED")
	b.expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
	b.open("/")
	b.figures("jobs", ".c-ready", "1")
	s.stop()
	b.has(0, "#status.live")
	s.push("jobs", 0, "b")
	startDashboard(t, append(listen, "--server", s.NATS.URL())...)
	b.figures("jobs", ".c-ready", "2")
	b.has(1, "#status.live")
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
		window.EventSource = class extends Source {
			constructor(url) { super(url); streams.push(this) }
		}`})
	b.open("/")
	b.has(2, "#rows tr")
	b.do(`document.addEventListener("htmx:beforeOnLoad", () => streams.at(-1).dispatchEvent(
		new MessageEvent("patch", {data: $("#queues").outerHTML})), {once: true})`)
	b.fill("#filter", "ano")
	b.has(1, "#rows tr")
	s.push("another", 0, "c")
	b.figures("another", ".c-ready", "2")
}
