package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// refuses waits until a form says that a field is wrong, and still has the typed text.
func (b *tab) refuses(form string, typed map[string]string) {
	b.Helper()
	b.until(`$("` + form + ` .err")?.innerText.length > 0`)
	for field, text := range typed {
		b.until(fmt.Sprintf(`$("%s [name=%s]").value == %s`, form, field, quoted(text)))
	}
}

// The forms of a queue's page push items and change settings. A mistake is shown beside its field,
// nothing typed is lost, and nothing is pushed or set.
func TestForms(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	path := "/queue/pq/jobs"

	b := newTab(t, s.url)
	b.expect("status of 4")

	push := func(fields ...string) {
		b.open(path, `$("#push form")`)
		b.press("#push", "Push an item")

		for i := 0; i < len(fields); i += 2 {
			b.fill("#push [name="+fields[i]+"]", fields[i+1])
		}

		b.press("#push", "Push")
	}

	// Pushes: all fields, a delay, and a mistake in each of two fields.
	push("value", "<b>bold</b>", "priority", "-7", "headers", "X-Tenant: acme\nX-Kind: a: b",
		"unique", "one")
	b.seesIn("#push", "ushed")
	item, err := s.client.PriorityQueue("jobs").Pop(t.Context())
	must(t, err)

	if string(item.Value) != "<b>bold</b>" || item.Priority != -7 ||
		item.Headers.Get("X-Tenant") != "acme" || item.Headers.Get("X-Kind") != "a: b" {
		t.Errorf("pushed %+v", item)
	}

	push("value", "later", "delay", "1000h", "ttl", "2000h")
	b.seesIn("#push", "ushed")
	s.lengths("jobs", 0, 0, 1)

	for field, text := range map[string]string{"ttl": "1ms", "headers": "Pq-Id: mine"} {
		push("value", "kept <&>", "unique", "kept", field, text)
		b.refuses("#push", map[string]string{"value": "kept <&>", "unique": "kept", field: text})
		b.until(`$("#push [name=` + field +
			`]").ariaInvalid == "true" && document.activeElement.name == "` + field + `"`)
	}

	s.lengths("jobs", 0, 0, 1)

	// A queue that is FIFO has no priorities.
	path = "/queue/q/mail"
	push("value", "dear all")
	b.seesIn("#push", "ushed")
	b.has(0, "[name=priority]")
	path = "/queue/pq/jobs"

	// Settings: somebody else changes one while the form is open.
	b.open(path, `$("#settings form")`)
	b.seesIn("#settings", "None is set")
	b.until(`!$$("#settings input, #settings select").some(e => e.checkVisibility())`)
	b.press("#settings", "Other settings")
	b.fill("#set-ttl", "3h")
	b.fill("#set-ttl", "") // what is as it was, somebody else may change
	b.do(`document.activeElement.blur()`)
	_, err = s.client.PriorityQueue("jobs").Configure(t.Context(),
		client.Settings{TTL: 2 * time.Hour})
	must(t, err)

	b.until(`$("#set-ttl").value == "2h0m0s" && $("[name='before.ttl']").value == "2h0m0s"`)
	// The fold stays open.
	b.until(`!$("#set-ttl").closest("details") && $("#set-backoff").checkVisibility()`)
	b.fill("#set-max_deliver", "5")
	b.fill("#set-backoff", "1s,10s")
	b.press("#settings", "Save")
	b.until(`$("#settings .done")`)

	if set := s.settings("jobs"); set.MaxDeliver != 5 || len(set.Backoff) != 2 {
		t.Errorf("settings %+v", set)
	}

	// A number beyond the bounds.
	b.until(
		`!$("#set-ack_wait").checkVisibility() && !$("[id='set-source.stream']").checkVisibility()`)
	b.fill("#set-max_deliver", "1099511627776")
	b.press("#settings", "Other settings")
	b.fill("#set-ack_wait", "7m")
	b.press("#settings", "Save")
	b.seesIn("#settings .err", "max_deliver")

	// A mistake in a fold opens it.
	b.open(path, `$("#settings form")`)
	b.press("#settings", "Source")
	b.fill("[id='set-source.priority']", "token x")
	b.press("#settings", "Save")
	b.until(`document.activeElement.id == "set-source.priority" &&
		document.activeElement.checkVisibility()`)

	// With one mistake, nothing else is set either.
	b.open(path, `$("#settings form")`)
	b.press("#settings", "Other settings")
	b.fill("#set-max_deliver", "1099511627776")
	b.fill("#set-ack_wait", "7m")
	b.press("#settings", "Save")
	b.seesIn("#settings .err", "max_deliver")

	b.refuses("#settings", map[string]string{"max_deliver": "1099511627776", "ack_wait": "7m"})
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

// A queue and a group are paused and resumed from the queue's page, and the queue is purged only
// after its name was typed.
func TestPauseAndPurge(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	jobs := s.client.PriorityQueue("jobs")
	s.push("jobs", 0, "a", "b")
	_, err := jobs.Push(t.Context(), 0, []byte("c"), client.Group("acme"))
	must(t, err)

	_, err = jobs.Push(t.Context(), 0, []byte("d"), client.Delay(1000*time.Hour))
	must(t, err)
	b := newTab(t, s.url)
	b.expect("status of 4")

	// The queue is paused and resumed.
	b.open("/queue/pq/jobs", `$("#pause form") && $("#purge form")`)
	b.fill("#pause [name=for]", "1000h")
	b.press("#pause", "Pause")
	b.press("#pause", "Resume") // appears
	b.seesIn("#pause", "Pause for")

	if set := s.settings("jobs"); !set.PauseUntil.IsZero() {
		t.Errorf("still paused until %v", set.PauseUntil)
	}

	// So is a group. The second click of a double click changes nothing.
	b.seesIn("#depth", "acme")
	b.do(`document.addEventListener("htmx:afterSettle", () => $("#depth button").dispatchEvent(
		new MouseEvent("click", {bubbles: true, cancelable: true, detail: 2})), {once: true})`)
	b.press("#depth", "Pause")
	b.seesIn("#depth", "(paused)", "Resume")
	b.seesIn("#pause", "Group acme is passed over.")
	b.seesIn("#head", "Paused groups are passed over: acme.")
	b.until(`document.activeElement.closest("#depth button")`)
	b.press("#depth", "Resume")
	b.until(`!$("#pause").innerText.includes("acme")`)

	// It is paused for as long as was typed.
	began := time.Now()
	b.fill("#pause [name=for]", "1000h")
	b.press("#pause", "Pause")
	b.seesIn("#pause", "Resume")
	b.seesIn("#totals", "Paused")

	least, most := began.Add(1000*time.Hour-time.Second), time.Now().Add(1000*time.Hour+time.Second)
	if until := s.settings("jobs").PauseUntil; until.Before(least) || until.After(most) {
		t.Errorf("paused until %v", until)
	}

	s.logged("pause", "jobs")

	// Somebody else resumes it: the page says so.
	_, err = jobs.Configure(t.Context(), client.Settings{}, "pause_until")
	must(t, err)
	b.until(`!$("#totals").innerText.includes("Paused")`)
	b.fill("#pause [name=for]", "a while")
	b.press("#pause", "Pause")

	b.refuses("#pause", map[string]string{"for": "a while"})

	// To purge, the name has to be typed.
	b.press("#purge", "Purge")
	b.do(`$("#purge [name=state]").value = "ready"`)
	b.press("#purge form", "Purge…")
	b.seesIn("#act", "3 items")
	b.fill("#act [name=name]", "jobs")
	b.press("#act", "Purge 3 items")
	b.seesIn("#act", "3 items purged")
	s.lengths("jobs", 0, 0, 1)
	s.logged("purge", "jobs", "3")
}
