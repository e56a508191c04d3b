package dashboard

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

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
	b.seesIn("#pause", "Resume")
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

// TestLargeValues: a value as large as NATS lets one be can be pushed and downloaded, and a larger one is refused.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	large := strings.Repeat("é<&", 250_000) // 1,000,000 bytes
	if code, body := s.post("/queue/pq/jobs/push", url.Values{"value": {large}}); code >= 400 {
		t.Fatalf("%d %.300s", code, mainOf(body))
	}
	if _, body := s.send(s.request("GET", "/queue/pq/jobs/item/"+s.ids("jobs")[0]+"/value", "")); body != large {
		t.Errorf("downloaded %d bytes", len(body))
	}
	code, body := s.post("/queue/pq/jobs/push", url.Values{"value": {strings.Repeat("x", 1_500_000)}, "priority": {"77"}})
	if code < 400 || !strings.Contains(body, `value="77"`) || !strings.Contains(body, "xxxxxxxxxx") {
		t.Errorf("one and a half million bytes: %d %.300s", code, mainOf(body))
	}
	s.lengths("jobs", 1)
}
