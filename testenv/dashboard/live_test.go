package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Of two users, one sees what the other does, and who acts too late is told so.
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
		b.click(`input[name=ids][value^="` + id + `"]`)
		b.press("#bulk", "Remove…")
		b.seesIn("#act", "1 item")
	}

	first.press("#act", "Remove 1 item")
	first.seesIn("#act", "1 item removed")
	second.press("#act", "Remove 1 item")
	second.seesIn("#act", "no such item")
	s.lengths("jobs", 2)
}

// A page that nobody sees asks for nothing, and is right again when somebody does.
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
			Object.defineProperty(document, "hidden",
				{value: %[1]q == "hidden", configurable: true})
			document.dispatchEvent(new Event("visibilitychange", {bubbles: true}))`, state))
	}

	hide("hidden")
	b.do(`performance.clearResourceTimings()`)

	// The visible tab of somebody else asks again meanwhile; this one does not.
	other := newTab(t, s.url)
	other.open("/")

	for _, n := range []string{"2", "3"} {
		s.push("jobs", 0, "b")
		other.figures("jobs", ".c-ready", n)
	}

	asked := eval[string](b, `performance.getEntriesByType("resource").map(e => e.name).join(" ")`)
	if strings.Count(asked, "http") > 1 { // one may have been under way
		t.Errorf("a hidden page has asked for %s", asked)
	}

	hide("visible")
	b.figures("jobs", ".c-ready", "3")
}

// While the bridge is away, then NATS, the page says so, /readyz fails, and a form keeps what was
// typed. When they are back, the page and the form go on.
func TestOutage(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.push("jobs", 0, "a")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs", `$("#push form")`)
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "typed before")

	s.Bridge.MustStop()
	b.has(1, "#status.away")
	b.expect("status of 5") // of 503 for what needs a bridge

	b.press("#push", "Push")
	b.refuses("#push", map[string]string{"value": "typed before"})

	s.NATS.Stop()
	testenv.Eventually(t, func() error {
		if reply, _ := s.send("GET", "/readyz", ""); reply.StatusCode != 503 {
			return fmt.Errorf("/readyz: %d", reply.StatusCode)
		}
		return nil
	})

	s.NATS.Start()
	s.StartBridge().WaitReady()
	b.has(1, "#status.connected")
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push")
	b.seesIn("#push", "ushed")
	s.lengths("jobs", 2)
}

// An open page says that the dashboard does not answer, and goes on once that is started again.
func TestDashboardComesBack(t *testing.T) {
	t.Parallel()

	listen := []string{"--listen", fmt.Sprintf("127.0.0.1:%d", harness.Port(t))}
	s := newSystem(t, listen...)
	s.push("jobs", 0, "a")

	b := newTab(t, s.url)
	b.expect("ERR_CONNECTION_REFUSED")

	b.open("/")
	b.figures("jobs", ".c-ready", "1")

	s.stop()
	b.has(1, "#status.lost")
	b.seesIn("#status", "does not answer")

	at := b.text("#as-of time")
	s.push("jobs", 0, "b")
	startDashboard(t, append(listen, "--server", s.NATS.URL())...)
	b.figures("jobs", ".c-ready", "2")
	b.has(1, "#status.connected")

	if b.text("#as-of time") == at {
		t.Errorf("the page is still as of %s", at)
	}
}

// If the page asks for itself just before the answer to a filter arrives, the filter counts.
func TestFilterWhileItChanges(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.push("jobs", 0, "a")
	s.push("another", 0, "b")
	b := newTab(t, s.url)
	b.open("/")
	b.has(2, "#rows tr")
	b.do(`document.addEventListener("htmx:beforeOnLoad",
		() => document.dispatchEvent(new Event("visibilitychange")), {once: true})`)
	b.fill("#filter", "ano")
	b.has(1, "#rows tr")
	s.push("another", 0, "c")
	b.figures("another", ".c-ready", "2")
	b.has(1, "#rows tr")
}

// While a page changes, it keeps typed text, selections, folds and the focus.
func TestRefresh(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	ids := s.push("jobs", 5, "a", "b")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs", `$("#push form")`)
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "typed")
	b.do(
		`window.link = $("#head a"); link.focus(); getSelection().selectAllChildren($("#head h2"))`)
	at := b.text("#as-of")

	// Another item changes the page.
	s.push("jobs", 3, "c")
	b.seesIn("#totals", "Ready\n3")
	b.until(`$("#as-of").innerText != ` + quoted(at))
	b.until(`$("#push details").open && $("#push [name=value]").value == "typed" &&
		!$("#purge details").open`)
	b.until(`document.activeElement == link && getSelection().toString() == "Next to be served"`)

	// A selection is of an item, wherever it stands.
	b.open("/queue/pq/jobs/items", `$("#bulk")`)
	b.click(`input[name=ids][value^="` + ids[0] + `"]`)
	s.push("jobs", 1, "d")
	b.has(4, "#items tbody tr")
	b.until(`$$("[name=ids]:checked").map(i => i.value).join() == ` + quoted(ids[0]) +
		` && document.activeElement.value == ` + quoted(ids[0]))
	must(t, s.client.PriorityQueue("jobs").Remove(t.Context(), ids[0]))

	b.has(3, "#items tbody tr")
	b.has(0, "[name=ids]:checked")

	// The page of an item keeps the selected text, too, until the item is gone.
	b.open("/queue/pq/jobs/item/" + ids[1])
	b.do(`getSelection().selectAllChildren($("#value"))`)
	b.seesIn(".facts", "Served after\n2 items")
	delivery := s.lease("jobs")
	b.seesIn(".facts", "Served after\n1 item")
	b.until(`getSelection().toString() == "b"`)
	must(t, delivery.Ack(t.Context()))

	b.expect("status of 4")
	must(t, s.client.PriorityQueue("jobs").Remove(t.Context(), ids[1]))
	b.seesIn("main", "No job with this id is in jobs")
}
