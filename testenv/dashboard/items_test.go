package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv"
)

// pushMany pushes n items, whose values are item 0, item 1 and so on. Each tenth belongs to the
// tenant acme.
func (s *system) pushMany(queue string, n int) {
	s.t.Helper()
	items := make([]client.PushItem, n)

	for i := range items {
		items[i].Message = client.Message{Value: fmt.Appendf(nil, `{"item": %d}`, i)}
		tenant := "initech"

		if i%10 == 0 {
			tenant = "acme"
		}

		items[i].Headers = map[string][]string{"X-Tenant": {tenant}}
	}

	_, err := s.client.PriorityQueue(queue).PushMany(s.t.Context(), items)
	must(s.t, err)
}

// act has an action ask first, with what it is about, and then be done.
func (b *tab) act(form, action string, n int, done string) {
	b.Helper()
	b.press(form, action+"…")
	items := "items"

	if n == 1 {
		items = "item"
	}

	about := fmt.Sprintf("%d %s", n, items)
	b.seesIn("#act h2", action+" "+about+" in ")
	b.press("#act", action+" "+about)
	b.seesIn("#act", about+" "+done)
	b.do("window.before = true")
	b.press("#act", "Close")
	b.until(`!window.before && document.readyState == "complete"`) // the list is loaded again
	b.until(`document.activeElement.closest("main")`)
}

// Items are listed a hundred at a time, by state, from either end, with links to the next ones.
func TestItems(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	jobs := s.client.PriorityQueue("jobs")
	s.pushMany("jobs", 250)
	s.lease("jobs")
	_, err := jobs.Push(t.Context(), 9, []byte("much later"), client.Delay(1000*time.Hour))
	must(t, err)

	b := newTab(t, s.url)
	// All of them, page by page.
	b.open("/queue/pq/jobs/items", `$("nav.tabs").innerText.includes("All 251")`)
	b.has(100, "#items tbody tr")
	b.seesIn("nav.tabs", "Ready 249", "Leased 1", "Delayed 1")
	b.press(".pager", "Next")
	b.seesIn("#items", `{"item": 100}`)
	b.press(".pager", "Next")
	b.has(51, "#items tbody tr")
	b.seesIn("#items", "much later")

	// Those in a state, with how long that lasts: a lease of 12 hours, a delay of 1,000.
	b.press("nav.tabs", "Leased")
	b.has(1, "#items tbody tr")
	b.seesIn("#items", `{"item": 0}`, "11h", "left")
	b.press("nav.tabs", "Delayed")
	b.has(1, "#items tbody tr")
	b.seesIn("#items", "41d")

	// From the back.
	b.open("/queue/pq/jobs/items?end=max")
	b.seesIn("#items tbody tr", "much later")
}

// Selected items are removed, moved and released after a question with their number.
func TestItemActions(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.push("jobs", 5, "a", "b", "c", "d", "e")
	delivery := s.lease("jobs")
	ids := s.ids("jobs")
	b := newTab(t, s.url)

	pick := func(ids ...string) {
		b.Helper()
		b.open("/queue/pq/jobs/items", `$("#bulk")`)
		for _, id := range ids {
			b.click(`input[name=ids][value^="` + id + `"]`)
		}
	}

	// A released item is no longer leased by who had it.
	b.open("/queue/pq/jobs/items", `$$("#bulk button").some(b => b.innerText == "Release…")`)
	b.click(`input[name=ids][value^="` + ids[0] + `"]`)
	b.act("#bulk", "Release", 1, "released")
	s.lengths("jobs", 5, 0)

	if err := delivery.Ack(t.Context()); err == nil {
		t.Error("a released item was acknowledged")
	}

	s.logged("release", "jobs", "1")

	// Two are removed.
	pick(ids[1], ids[3])
	b.act("#bulk", "Remove", 2, "removed")
	s.lengths("jobs", 3)
	s.logged("remove", "jobs", "2")

	// One is moved, once the priority is a number.
	pick(ids[4])
	b.expect("status of 4")

	b.press("#bulk", "Move…")
	b.fill("#act [name=priority]", "soon")
	b.press("#act", "Move 1 item")

	b.refuses("#act", map[string]string{"priority": "soon"})

	b.fill("#act [name=priority]", "-2")
	b.press("#act", "Move 1 item")
	b.seesIn("#act", "1 item moved to priority -2")

	// To the front: the dialog has a priority below all that are ready.
	pick(ids[2])
	b.press("#bulk", "To the front…")
	b.until(`$("#act [name=priority]")?.value == "-3"`)
	b.press("#act", "Move 1 item")
	b.seesIn("#act", "1 item moved to priority -3")
	b.press("#act", "Close")
	b.seesIn("#items tbody tr:first-child .c-prio", "-3")

	// All on the page.
	pick()
	b.click("[data-pick-all]")
	b.act("#bulk", "Remove", 3, "removed")
	s.lengths("jobs", 0)

	// Without any selected, there is nothing to do.
	s.push("jobs", 5, "a")
	pick()
	b.until(`$$("#bulk .acts button").length > 0`)
	b.has(0, "#bulk .acts button:not([disabled])")
}

// search searches a page of items.
func (b *tab) search(match, header string) {
	b.Helper()
	b.fill("[name=match]", match)
	b.fill("[name=header]", header)
	b.press("form.filter", "Search")
	b.until(
		`new URLSearchParams(location.search).has("search") && document.readyState == "complete"`)
}

// A search finds items by text or header, and acts on all that match.
func TestSearch(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.pushMany("jobs", 3000)
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")

	// By text.
	b.search(`"item": 777`, "")
	b.seesIn("#items", "1 item matches", "Looked at all 3,000")
	b.has(1, "#items tbody tr")

	// By header: each tenth of 3,000.
	b.open("/queue/pq/jobs/items", `$("#bulk")`)
	b.search("", "X-Tenant: acme")
	b.seesIn("#items", "300 items match")
	b.has(100, "#items tbody tr")
	b.press(".pager", "Next")
	b.seesIn("#items", `{"item": 1000}`)

	// All that match, not only those on the page.
	b.click("[data-pick-match]")
	b.act("#bulk", "Remove", 300, "removed")
	s.lengths("jobs", 2700)
}

// slow is a store whose reads wait while it is shut.
type slow struct {
	kv.Database
	door *sync.RWMutex
}

func (s slow) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	s.door.RLock()
	defer s.door.RUnlock()
	return s.Database.BeginRead(ctx)
}

// A search that takes long says so, and can be stopped.
func TestSearchStops(t *testing.T) {
	t.Parallel()

	var door sync.RWMutex
	s := systemIn(t, testenv.New(t, testenv.Options{
		Wrap: func(db kv.Database) kv.Database { return slow{db, &door} },
	}))
	s.pushMany("jobs", 10)
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items", `$("#bulk")`)

	door.Lock() // from now on, reads of the store wait
	defer door.Unlock()
	b.search("", "X-Tenant: acme")
	b.seesIn("#items", "0 items match so far")
	b.click("#stop")
	b.until(`!$("#stop")`)
	b.seesIn("#items", "0 items match. Stopped after")
}

// The page of an item shows its value as text, JSON or bytes, its headers and its state, removes
// it, and says when there is no such item.
func TestItem(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	value := map[string]any{
		"customer": "acme",
		"lines":    []int{1, 2, 3},
		"nested":   map[string]any{"deep": true},
	}

	text, err := json.Marshal(value)
	must(t, err)
	message := client.Message{Value: text, Headers: nats.Header{"X-Tenant": {"acme", "second"}}}
	ack, err := s.client.PriorityQueue("jobs").PushMsg(t.Context(), 3, message)
	must(t, err)

	s.push("jobs", 1, "before")

	b := newTab(t, s.url)

	// Its value in each of the ways.
	b.open("/queue/pq/jobs/item/" + ack.ID)
	b.sees(ack.ID, "ready", "X-Tenant", "acme", "second")
	b.until(`$("#value").innerText.split("\n").length > 5`) // JSON laid out
	b.seesIn(".facts", "Served after\n1 item", "Priority\n3", "Deliveries\n0")
	b.press(".views", "Text")
	b.until(`$("#value").innerText.trim() == ` + quoted(string(text)))
	b.press(".views", "Hex")
	b.seesIn("#value", "7b 22 63 75")

	// It is held back, and then removed from its page.
	page := "/queue/pq/jobs/item/" + ack.ID
	delivery, err := s.client.PriorityQueue("jobs").LeaseMax(t.Context(),
		client.AckWait(12*time.Hour))
	must(t, err)
	must(t, delivery.Nak(t.Context(), 1000*time.Hour))

	b.expect("status of 4") // once it is gone

	b.open(page, `$$("main button").some(b => b.innerText == "Remove…")`)
	b.seesIn(".facts", "41d", "Deliveries\n1")
	b.act("main", "Remove", 1, "removed")
	b.open(page)
	b.sees("No job with this id is in jobs")

	// An id that is none, and one of another queue.
	b.open("/queue/pq/jobs/item/" + url.PathEscape("../../x"))
	b.open("/queue/pq/other/item/" + ack.ID)
	b.sees("No job with this id is in other")
}

// Dead letters are grouped by cause, from which all of them are redriven or removed.
func TestDeadLetters(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	s.push("jobs", 0, "a1", "a2", "b1")
	s.push("mail", 0, "m1")
	s.bury("jobs", "out of paper in tray 1")
	s.bury("jobs", "out of paper in tray 2")
	s.bury("jobs", "no <b>ink</b>")
	s.bury("mail", "out of paper")
	s.lengths("jobs-dead", 3)
	s.lengths("mail-dead", 1)

	// Causes have no numbers, so the trays are one.
	b := newTab(t, s.url)
	b.open("/dead")
	b.sees("4 dead letters in 2 queues", "out of paper in tray *", "no <b>ink</b>")
	b.has(3, "#dead tbody tr")

	// Look at the dead letters of a cause, read one, redrive it.
	b.expect("status of 404") // once it is gone

	b.press("#dead tbody tr:first-child", "out of paper")
	b.has(2, "#items tbody tr")
	b.keys("u")
	b.at("/dead")
	b.clickOn(under("#dead tbody tr:first-child .c-count")) // the row is its link
	b.has(2, "#items tbody tr")
	b.clickOn(under("#items tbody .c-reason"))
	b.seesIn("#value", "a1")
	b.press(".facts", "All with this cause")
	b.has(2, "#items tbody tr")
	b.press("#items tbody tr", "")
	b.sees("Died", "Reason")
	b.open(b.location(), `$("main .acts button")`)
	b.act("main .acts", "Redrive", 1, "redriven")
	s.lengths("jobs", 1)
	s.lengths("jobs-dead", 2)

	// All of a cause at once: from its list, and without looking at them.
	b.open("/dead")
	b.press("#dead tbody", "no <b>ink</b>")
	b.seesIn("#items", "1 item matches", "Cause: no <b>ink</b>")
	b.has(1, "[data-pick-match]:checked")
	b.act("#bulk", "Redrive", 1, "redriven")
	s.lengths("jobs", 2)
	b.open("/dead")
	b.has(2, "#dead tbody tr")
	b.press("#dead tbody tr:has([href='/queue/pq/mail'])", "Redrive all…")
	b.seesIn("#act h2", "Redrive 1 item in mail-dead?")
	b.press("#act", "Redrive 1 item")
	b.seesIn("#act", "1 item redriven")
	b.press("#act", "Close")
	b.has(1, "#dead tbody tr")
	s.lengths("mail", 1)
}

// under is what a click in the middle of an element lands on, if that is a link.
func under(selector string) string {
	return `(() => {
		const e = $(` + quoted(selector) + `)
		e?.scrollIntoView({block: "center", behavior: "instant"})
		const r = e?.getBoundingClientRect()
		const [x, y] = r ? [r.left + r.width / 2, r.top + r.height / 2] : []
		return r && document.elementFromPoint(x, y)?.closest("a")
	})()`
}
