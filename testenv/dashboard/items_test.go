package dashboard

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// pushMany pushes n items, whose values are item 0, item 1 and so on. Each tenth belongs to the tenant acme.
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
	b.confirm(action, fmt.Sprintf("%d %s", n, items), done)
}

// confirm says yes to an action that asks.
func (b *tab) confirm(action, items, done string) {
	b.Helper()
	b.seesIn("#act h2", action+" "+items+" of ")
	b.press("#act", action+" "+items)
	b.seesIn("#act", items+" "+done)
	eval[bool](b, "window.before = true")
	b.press("#act", "Close")
	b.until(`!window.before && document.readyState == "complete"`) // the list is loaded again
}

func TestItems(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.pushMany("jobs", 250)
	_, err := s.client.PriorityQueue("jobs").LeaseMin(t.Context())
	must(t, err)
	_, err = s.client.PriorityQueue("jobs").Push(t.Context(), 9, []byte("much later"), client.Delay(time.Hour))
	must(t, err)

	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")
	b.has(100, "#items tbody tr")
	b.seesIn("nav.tabs", "All 251", "Ready 249", "Leased 1", "Delayed 1")
	b.press(".pager", "Next")
	b.seesIn("#items", `{"item": 100}`)
	b.press(".pager", "Next")
	b.has(51, "#items tbody tr")
	b.seesIn("#items", "much later")
	b.press("nav.tabs", "Leased")
	b.has(1, "#items tbody tr")
	b.seesIn("#items", `{"item": 0}`, "s left")
	b.press("nav.tabs", "Delayed")
	b.has(1, "#items tbody tr")
	b.seesIn("#items", "59m")
	b.open("/queue/pq/jobs/items?end=max")
	b.until(`document.querySelector("#items tbody tr").innerText.includes("much later")`)

	// The place of an item that has gone is still a place.
	page, err := s.client.PriorityQueue("jobs").Items(t.Context(), client.ItemsOptions{Limit: 50})
	must(t, err)
	must(t, s.client.PriorityQueue("jobs").Remove(t.Context(), *page.Next))
	b.open("/queue/pq/jobs/items?after=" + *page.Next)
	b.until(`document.querySelector("#items tbody tr").innerText.includes('{"item": 50}')`)
}

func TestItemActions(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 5, "a", "b", "c", "d", "e")
	delivery, err := s.client.PriorityQueue("jobs").LeaseMin(t.Context())
	must(t, err)
	ids := s.ids("jobs")
	b := newTab(t, s.url)
	pick := func(ids ...string) {
		b.open("/queue/pq/jobs/items")
		for _, id := range ids {
			b.click(`input[name=ids][value="` + id + `"]`)
		}
	}

	pick(ids[0])
	b.act("#bulk", "Release", 1, "released")
	s.lengths("jobs", 5, 0)
	if err := delivery.Ack(t.Context()); err == nil {
		t.Error("a released item was acknowledged")
	}
	s.logged("release", "jobs", "1")

	pick(ids[1], ids[3])
	b.act("#bulk", "Remove", 2, "removed")
	s.lengths("jobs", 3)
	s.logged("remove", "jobs", "2")

	pick(ids[4])
	b.expect("status of 4")
	b.press("#bulk", "Move…")
	b.fill("#act [name=priority]", "soon")
	b.press("#act", "Move 1 item")
	b.until(`document.querySelector("#act .err") && document.querySelector("#act [name=priority]").value == "soon"`)
	b.fill("#act [name=priority]", "-2")
	b.press("#act", "Move 1 item")
	b.seesIn("#act", "1 item moved")
	item, err := s.client.PriorityQueue("jobs").PeekMin(t.Context())
	must(t, err)
	if string(item.Value) != "e" || item.Priority != -2 {
		t.Errorf("first is %q of priority %d", item.Value, item.Priority)
	}

	// All on the page.
	b.open("/queue/pq/jobs/items")
	b.click("[data-pick-all]")
	b.act("#bulk", "Remove", 3, "removed")
	s.lengths("jobs", 0)

	// Without any selected, nothing happens.
	s.push("jobs", 5, "a")
	b.open("/queue/pq/jobs/items")
	b.run()
	if n := b.count("#bulk .acts button:not([disabled])"); n > 0 {
		b.press("#bulk", "Remove…")
		b.until(`document.querySelector("#act").innerText.length > 0`)
		b.until(`!document.querySelector("#act button.main:not([disabled])")`)
	}
	s.lengths("jobs", 1)
}

// search searches a page of items.
func (b *tab) search(match, header string) {
	b.Helper()
	b.fill("[name=match]", match)
	b.fill("[name=header]", header)
	b.press("form.filter", "Search")
	b.until(`new URLSearchParams(location.search).has("search")`)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.pushMany("jobs", 3000)
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")
	b.search(`"item": 777`, "")
	b.seesIn("#items", "1 item matches", "Looked at all 3,000")
	b.has(1, "#items tbody tr")

	b.open("/queue/pq/jobs/items")
	b.search("", "X-Tenant: acme")
	b.seesIn("#items", "300 items match")
	b.has(100, "#items tbody tr")
	b.press(".pager", "Next")
	b.seesIn("#items", `{"item": 1000}`)

	// All that match, not only those on the page.
	b.click("[data-pick-match]")
	b.act("#bulk", "Remove", 300, "removed")
	s.lengths("jobs", 2700)

	// Both at once, what is not there, and what is no header.
	b.open("/queue/pq/jobs/items")
	b.search(`"item": 77`, "X-Tenant: initech")
	b.seesIn("#items", "10 items match") // 77, and 771 to 779
	b.open("/queue/pq/jobs/items")
	b.search("nowhere", "")
	b.seesIn("#items", "Nothing matches")
	b.expect("status of 4")
	b.open("/queue/pq/jobs/items")
	b.fill("[name=header]", "no colon")
	b.press("form.filter", "Search")
	b.until(`document.querySelector(".filter .err, #items .err")?.innerText.length > 0 && document.querySelector("[name=header]").value == "no colon"`)
}

// TestSearchStops: a long search shows what it has found, and can be stopped.
func TestSearchStops(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.pushMany("jobs", 50_000)
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")
	b.search("", "X-Tenant: acme")
	b.until(`document.querySelectorAll("#items tbody tr").length > 0`)
	if b.count("#stop") > 0 {
		b.click("#stop")
		b.until(`!document.querySelector("#stop")`)
		b.until(`/Stopped after|Looked at all|More may match/.test(document.querySelector("#items").innerText)`)
	}
	b.seesIn("#items", "match")
}

func TestItem(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	value := map[string]any{"customer": "acme", "lines": []int{1, 2, 3}, "nested": map[string]any{"deep": true}}
	text, err := json.Marshal(value)
	must(t, err)
	message := client.Message{Value: text, Headers: map[string][]string{"X-Tenant": {"acme", "second"}}}
	ack, err := s.client.PriorityQueue("jobs").PushMsg(t.Context(), 3, message)
	must(t, err)
	s.push("jobs", 1, "before")

	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/item/" + ack.ID)
	b.sees(ack.ID, "ready", "X-Tenant", "acme", "second")
	b.until(`document.querySelector("#value").innerText.split("\n").length > 5`) // JSON laid out
	b.seesIn(".facts", "Served after\n1 item", "Priority\n3", "Deliveries\n0")
	b.press(".views", "Text")
	b.until(`document.querySelector("#value").innerText.trim() == ` + quoted(string(text)))
	b.press(".views", "Hex")
	b.seesIn("#value", "7b 22 63 75")

	reply, body := s.send(s.request("GET", "/queue/pq/jobs/item/"+ack.ID+"/value", ""))
	if body != string(text) || reply.Header.Get("Content-Type") != "application/octet-stream" ||
		!strings.HasPrefix(reply.Header.Get("Content-Disposition"), "attachment") || reply.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("download %q with %v", body, reply.Header)
	}

	delivery, err := s.client.PriorityQueue("jobs").LeaseMax(t.Context(), client.AckWait(time.Hour))
	must(t, err)
	must(t, delivery.Nak(t.Context(), time.Hour))
	b.open("/queue/pq/jobs/item/" + ack.ID)
	b.seesIn(".facts", "59m", "Deliveries\n1")
	b.act("main", "Remove", 1, "removed")
	b.expect("status of 404")
	b.open("/queue/pq/jobs/item/" + ack.ID)
	b.sees("no such item")
	b.expect("status of 4")
	b.open("/queue/pq/jobs/item/" + url.PathEscape("../../x"))
	b.open("/queue/pq/other/item/" + ack.ID)
	b.sees("no such item")
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.push("jobs", 0, "a1", "a2", "b1")
	s.push("mail", 0, "m1")
	s.bury("jobs", "out of paper")
	s.bury("jobs", "out of paper")
	s.bury("jobs", "no <b>ink</b>")
	s.bury("mail", "out of paper")
	s.lengths("jobs-dead", 3)

	b := newTab(t, s.url)
	b.open("/dead")
	b.sees("4 dead letters in 2 queues", "out of paper", "no <b>ink</b>")
	b.until(`document.querySelectorAll("#dead tbody tr").length == 3`)

	// Look at those of a reason, read one, send it home.
	b.press("#dead tbody tr:first-child", "out of paper")
	b.has(2, "#items tbody tr")
	b.press("#items tbody tr", "")
	b.seesIn("#value", "a1")
	b.sees("Died", "Because of")
	b.press("main .acts", "Send home…")
	b.confirm("Send home", "1 item", "sent home")
	s.lengths("jobs", 1)
	s.lengths("jobs-dead", 2)

	// All of a reason at once.
	b.open("/dead")
	b.until(`document.querySelectorAll("#dead tbody tr").length == 3`)
	find := `#dead tbody tr:has(bdi)`
	eval[bool](b, `(() => { [...document.querySelectorAll(`+quoted(find)+`)].find(r => r.innerText.includes("ink")).id = "ink"; return true })()`)
	b.press("#ink", "Send home…")
	b.confirm("Send home", "1 item", "sent home")
	s.lengths("jobs", 2)

	b.open("/queue/pq/jobs-dead/items")
	b.sees("Dead letters in jobs-dead")
	b.click("[data-pick-all]")
	b.press("#bulk", "Send home…")
	b.confirm("Send home", "1 item", "sent home")
	s.lengths("jobs", 3)
	s.logged("redrive", "jobs-dead", "1")
}

func TestFIFOQueue(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	q := s.client.Queue("mail")
	ack, err := q.Enqueue(t.Context(), []byte("dear all"))
	must(t, err)
	b := newTab(t, s.url)
	b.open("/queue/q/mail")
	b.seesIn("#totals", "Ready\n1")
	b.press("#push", "Push an item")
	b.fill("#push [name=value]", "second")
	b.press("#push", "Push")
	b.seesIn("#push", "ushed")
	b.open("/queue/q/mail/items")
	b.has(2, "#items tbody tr")
	b.open("/queue/q/mail/item/" + ack.ID)
	b.seesIn("#value", "dear all")
	b.act("main", "Remove", 1, "removed")
	n, err := q.Len(t.Context())
	must(t, err)
	if n != 1 {
		t.Errorf("%d items", n)
	}
}
