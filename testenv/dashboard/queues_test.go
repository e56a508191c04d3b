package dashboard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
)

// row is the row of a queue in the list, as JavaScript has it.
func row(name string) string {
	return fmt.Sprintf(`$$("#rows tr").find(r => r.querySelector("th a").textContent == %s)`,
		quoted(name))
}

// figures waits until the list shows these texts for a queue, by the classes of the cells.
func (b *tab) figures(name string, cells ...string) {
	b.Helper()
	for i := 0; i < len(cells); i += 2 {
		cell := fmt.Sprintf("%s?.querySelector(%s).innerText.trim()", row(name), quoted(cells[i]))
		b.until(cell + " == " + quoted(cells[i+1]))
	}
}

// names are those in the list, in its order, as JavaScript has them.
const names = `$$("#rows th a").map(a => a.innerText).join(" ")`

// The list of queues filters as somebody types, sorts by columns and follows the figures.
func TestQueues(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.push("jobs", 1, "a", "b", "c")
	s.push("broken", 1, "d", "e")
	s.bury("broken", "out of paper")
	_, err := s.client.FIFOQueue("mail").Push(t.Context(), 0, []byte("dear all"))
	must(t, err)

	paused := client.Settings{PauseUntil: time.Now().Add(1000 * time.Hour)}
	_, err = s.client.PriorityQueue("broken").Configure(t.Context(), paused)
	must(t, err)

	s.lease("jobs")

	b := newTab(t, s.url)
	b.open("/")
	b.sees("3 queues")
	b.figures("jobs", ".c-ready", "2", ".c-leased", "1", ".c-delayed", "0")
	b.figures("broken", ".c-ready", "1", ".c-dead", "1")
	b.figures("mail", ".c-ready", "1")
	b.until(row("broken") + `.innerText.includes("paused")`)
	b.until(row("mail") + `.innerText.includes("fifo")`)

	// It changes by itself, and a new queue appears.
	s.push("jobs", 2, "f")
	b.figures("jobs", ".c-ready", "3")
	s.push("another", 2, "g")
	b.figures("another", ".c-ready", "1")

	// So do ages, rates and lines.
	oldest := row("mail") + `.querySelector(".c-oldest").innerText`
	b.until(`/^\d/.test(` + oldest + `)`)
	b.until(oldest + " != " + quoted(eval[string](b, oldest)))
	b.figures("mail", ".c-in", "0")
	b.until(row("mail") +
		`.querySelector(".c-line polyline").getAttribute("points").split(" ").length > 2`)

	// Filters as one types, and keeps that while it changes.
	b.fill("#filter", "ANO")
	b.has(1, "#rows tr")
	b.sees("1 of 4 queues")
	s.push("another", 2, "h")
	b.figures("another", ".c-ready", "2")
	b.until(`location.search.includes("filter=ANO")`)
	b.fill("#filter", "nothing like it")
	b.sees("None of 4 queues")
	b.fill("#filter", "")
	b.sees("4 queues")

	b.press("form.filter", "Fifo")
	b.until(names + ` == "mail"`)
	b.press("form.filter", "All")
	b.has(4, "#rows tr")

	// Sorts by each column, both ways.
	b.press("thead", "Ready")
	b.until(`$("th[aria-sort=descending]")?.innerText.startsWith("Ready") && ` + names +
		`.startsWith("jobs ")`)
	b.press("thead", "Ready")
	b.until(`$("th[aria-sort=ascending]")?.innerText.startsWith("Ready") && ` + names +
		`.endsWith(" jobs")`)

	b.press("#rows", "jobs")
	b.at("/queue/pq/jobs")
	b.seesIn("h1", "jobs")
}

// The page of a queue shows its figures, priorities, next items and charts, and updates itself.
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
	b.until(`$(".chart canvas")`)

	// It changes by itself.
	s.push("jobs", 7, "later")
	b.seesIn("#totals", "Ready\n4")
	b.seesIn("#depth", "7")

	// So does the page of a queue that does not exist yet.
	b.open("/queue/pq/absent")
	b.sees("neither items nor settings")
	s.push("absent", 0, "now it is there")
	b.seesIn("#totals", "Ready\n1")
}

// While a group and the ready items empty, everything below stays in its place, and the legend of a
// chart says no figures of its own.
func TestNothingJumps(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	jobs := s.client.PriorityQueue("jobs")

	for i, group := range []string{"acme", "globex", "initech"} {
		_, err := jobs.Push(t.Context(), int64(i), []byte("x"), client.Group(group))
		must(t, err)
	}

	b := newTab(t, s.url)
	b.open("/queue/pq/jobs", `$(".chart canvas") && $("#depth form")`)
	b.seesIn("#depth", "acme", "globex", "initech")
	b.until(`$("#depth").style.minHeight`)
	const places = `["#head", "#consumers", "#push"]` +
		`.map(s => $(s).getBoundingClientRect().top).join()`
	before := eval[string](b, places)

	_, err := jobs.Pop(t.Context())
	must(t, err)
	b.until(`!$("#depth").innerText.includes("acme")`)

	if after := eval[string](b, places); after != before {
		t.Errorf("a group is empty, and what was at %s is at %s", before, after)
	}

	_, err = jobs.Purge(t.Context(), "")
	must(t, err)
	b.seesIn("#depth", "No item is ready")
	b.until(`!$("#head tbody")`)

	if after := eval[string](b, places); after != before {
		t.Errorf("all are empty, and what was at %s is at %s", before, after)
	}

	if legend := b.text(".u-legend"); strings.ContainsAny(legend, "0123456789") {
		t.Errorf("the legend has the figures %q beside those above", legend)
	}

	b.do(`$(".u-over").dispatchEvent(new MouseEvent("mousemove",
		{clientX: $(".u-over").getBoundingClientRect().right - 1}))`)
	b.until(`/ready\s*\d/.test($(".u-legend").innerText)`)
}

// The page of a queue lists its schedules, with what they have pushed so far, and says what its
// source waits for. One page has the schedules of all queues and their actions, with the keyboard
// alone.
func TestSchedules(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	jobs := s.client.PriorityQueue("jobs")

	for _, c := range []client.Schedule{
		{ID: "each-second", Every: client.Interval(time.Second)},
		{ID: "<b&nightly", Cron: "0 3 * * *", Zone: "Europe/Berlin", Paused: true},
	} {
		_, err := jobs.SetSchedule(t.Context(), c)
		must(t, err)
	}

	_, err := jobs.Configure(t.Context(), client.Settings{Source: `{"stream":"ORDERS"}`})
	must(t, err)

	b := newTab(t, s.url)
	b.open("/queue/pq/jobs")
	b.seesIn("#schedules", "each-second", "every 1s", "<b&nightly", "0 3 * * * Europe/Berlin",
		"paused")
	b.until(`$$("#schedules tr").find(r => r.innerText.startsWith("each-second"))
		.cells[4].innerText >= 2`)
	b.seesIn("#totals", "Source\ndrawn to 0, 0 left, waiting: stream ORDERS:")

	// The page of one changes by itself. What is typed in its form stays, although it has a field
	// named id.
	b.open("/schedule?kind=pq&queue=jobs&id=each-second", `$("form.schedule")`)
	b.fill("form.schedule [name=value]", "typed")
	b.do(`document.activeElement.blur()`)
	lead := b.text("main .lead")
	b.until(`$("main .lead").innerText != ` + quoted(lead))
	b.until(`$("form.schedule [name=value]").value == "typed"`)

	// The page of all schedules: resume one, and run it with the keyboard.
	b.open("/schedules", `$("#schedules button")`)
	b.seesIn("#schedules tbody tr:first-child", "each-second", "jobs", "every 1s")
	b.press("#schedules tbody tr:nth-child(2)", "Resume")
	b.seesIn("#schedules tbody tr:nth-child(2)", "<b&nightly", "in ", "Pause")
	b.do(`$("#schedules tbody tr:nth-child(2) [value=run]").focus()`)
	b.keys("\r")
	b.until(`$("#schedules tbody tr:nth-child(2)").cells[5].innerText == "1"`)
	b.until(`document.activeElement.value == "run" &&
		document.activeElement.closest("tr:nth-child(2)")`)
	b.until(`$$("#schedules [data-local]")
		.every(e => /^[A-Z]/.test(e.textContent) && e.title.endsWith(" UTC"))`)

	// Add one, change it, remove it.
	b.press("main", "Add a schedule")
	b.fill("[name=queue]", "mail")
	b.fill("[name=id]", "weekly")
	b.fill("[name=cron]", "@weekly")
	b.press("form.schedule", "Add")
	b.at("/schedules")
	b.press("#schedules", "weekly")
	b.at("/schedule")
	b.until(`$("[name=cron]").value == "@weekly"`)
	b.fill("[name=cron]", "")
	b.fill("[name=every]", "15m")
	b.press("form.schedule", "Save")
	b.at("/schedules")
	b.seesIn("#schedules", "every 15m")
	b.press("#schedules", "weekly")
	b.press("main", "Remove")
	b.press("details", "Remove this schedule")
	b.at("/schedules")
	b.has(2, "#schedules tbody tr")

	b.open("/queue/pq/jobs")
	for _, id := range []string{"each-second", "<b&nightly"} {
		must(t, jobs.Unschedule(t.Context(), id))
	}

	b.until(`$("#schedules").innerText.trim() == "Add a schedule"`)
}

// Bridges are listed by host with their figures, on a phone as well, and one that ends is said not
// to answer.
func TestBridges(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	second := s.StartBridge(func(o *bridge.Options) { o.Host = "machine-7" })
	second.WaitReady()
	b := newTab(t, s.url)
	b.open("/bridges")
	b.sees("2 bridges", "0.0.1")
	b.seesIn("#bridges tbody tr:last-child th", "machine-7") // they are in the order of their hosts
	b.until(`$$(".c-ok").filter(c => c.innerText == "yes").length == 2`)
	second.MustStop()

	b.seesIn("#bridges", "it does not answer")

	// A phone has the same figures, with what they are.
	b.resize(390, 740)
	b.until(`$$("#bridges td[data-label]").length == 16 && $$("#bridges td[data-label]")
		.every(c => c.checkVisibility() &&
			getComputedStyle(c, "::before").content.includes(c.dataset.label))`)

	// A pop that waits is counted.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})

	go func() {
		defer close(done)
		_, _ = s.client.PriorityQueue("jobs").Pop(ctx, client.Expires(time.Hour))
	}()

	b.until(`$$("#bridges td.c-wait").some(c => c.innerText == "1")`)
	cancel()
	<-done
}
