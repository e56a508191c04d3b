package dashboard

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

// impostor answers what the dashboard asks in place of a bridge, as whoever may subscribe to pq.> can.
func impostor(t *testing.T, env *testenv.Env, attack string) {
	t.Helper()
	nc := env.Connect()
	answer := func(subject string, reply func(m *nats.Msg) *nats.Msg) {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			if r := reply(m); r != nil {
				_ = m.RespondMsg(r) // fails only when the test ends
			}
		})
		must(t, err)
	}
	object := func(v any) *nats.Msg {
		text, _ := json.Marshal(v) // never returns an error for these types
		return &nats.Msg{Data: text}
	}

	queues := []map[string]any{}
	for _, name := range []string{attack, "../../" + attack, "\u202e" + attack, strings.Repeat(attack, 1000), "", "jobs"} {
		queues = append(queues, map[string]any{"queue": name, "ready": -1, "leased": 1 << 62, "delayed": 0})
	}
	for _, kind := range []string{"pq", "q"} {
		answer(kind+".list", func(*nats.Msg) *nats.Msg { return object(map[string]any{"queues": queues, "next": nil}) })
		for _, verb := range []string{"info", "items", "get", "rank", "config", "push", "purge", "remove"} {
			answer(kind+".*."+verb, func(m *nats.Msg) *nats.Msg {
				if verb == "items" {
					item := map[string]any{
						"id": attack, "state": attack, "reason": attack, "size": -5, "value": []byte(attack), "deliveries": -1,
						"headers": map[string]any{attack: []string{attack}, "Pq-Dead-Queue": []string{attack}, "Pq-Dead-Reason": []string{attack}},
						"due":     "0001-01-01T00:00:00Z", "pushed_at": "9999-12-31T23:59:59Z",
					}
					return object(map[string]any{"items": []any{item, item}, "next": attack, "scanned": -1})
				}
				return &nats.Msg{Header: nats.Header{"Nats-Service-Error": {attack}, "Nats-Service-Error-Code": {"400"}}}
			})
		}
	}
	answer("$SRV.STATS.pqbridge", func(*nats.Msg) *nats.Msg {
		return object(map[string]any{
			"type": "io.nats.micro.v1.stats_response", "name": "pqbridge", "id": attack, "version": attack, "started": "2026-01-01T00:00:00Z",
			"endpoints": []any{map[string]any{"name": attack, "num_requests": -5, "last_error": attack, "num_errors": 3}},
			"bridge":    map[string]any{"ready": false, "why": attack, "store": attack, "waiters": -1, "queues": []any{map[string]any{"kind": attack, "queue": attack, "in": -5, "out": 1 << 62}}},
		})
	})
	must(t, nc.Flush())
}

// TestImpostor: what answers in place of a bridge may say anything, and never runs anything.
func TestImpostor(t *testing.T) {
	t.Parallel()
	for _, attack := range []string{attacks[1], attacks[2], attacks[11]} {
		env := testenv.New(t, testenv.Options{Stopped: true})
		env.NATS.Start()
		impostor(t, env, attack)
		d := startDashboard(t, "--server", env.NATS.URL())
		b := newTab(t, d.url)
		b.expect("status of ")
		for _, path := range []string{
			"/", "/bridges", "/dead", "/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs-dead/items", "/queue/pq/jobs/item/x",
			"/queue/pq/" + url.PathEscape(attack), "/queue/pq/jobs/item/" + url.PathEscape(attack),
		} {
			b.open(path)
			b.until(`document.querySelector("main")`)
			b.unharmed()
			b.showsNoBidi()
		}
		b.open("/queue/pq/jobs/items")
		b.search("x", "")
		b.until(`document.querySelector("#items")`)
		b.unharmed()
	}
}

// TestBlindRole: a NATS user who may do nothing, or only list, gets pages that say so.
func TestBlindRole(t *testing.T) {
	t.Parallel()
	env := testenv.New(t, testenv.Options{NATS: func(o *server.Options) {
		configure := testenv.ServerOptions(t, `authorization { users = [
			{user: all, password: all}
			{user: lister, password: lister, permissions: {publish: ["pq.list", "q.list"], subscribe: "_INBOX.>"}}
			{user: nobody, password: nobody, permissions: {publish: "nothing", subscribe: "_INBOX.>"}}
			{user: deaf, password: deaf, permissions: {publish: ">", subscribe: "nothing"}}
		] }
		no_auth_user: all`)
		configure(o)
	}})
	s := &system{Env: env, t: t, client: clientOf(env.Conn)}
	ids := s.push("jobs", 0, "secret-value")
	for user, sees := range map[string]string{"lister": "jobs", "nobody": "may not", "deaf": "cannot receive replies"} {
		d := startDashboard(t, "--server", env.NATS.URL(), "--user", user, "--password", user)
		b := newTab(t, d.url)
		b.expect("status of ")
		b.open("/")
		b.seesIn("body", sees)
		for _, path := range []string{"/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/" + ids[0], "/dead", "/bridges"} {
			b.open(path)
			b.until(`document.querySelector("main")`)
			if html := eval[string](b, "document.documentElement.outerHTML"); strings.Contains(html, "secret-value") {
				t.Errorf("%s sees the value at %s", user, path)
			}
			if n := b.count(`#bulk, #push form, #purge form, #pause form, [formaction]`); n > 0 {
				t.Errorf("%s has actions at %s", user, path)
			}
		}
	}
	s.lengths("jobs", 1)
}

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
