package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// withRoles returns a system whose NATS server has the users of docs/operations.md. Each password is the name. The
// dashboard is that of one of them.
func withRoles(t *testing.T, user string) *system {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	must(t, err)
	block := regexp.MustCompile("(?ms)^```conf\n(.*?)^```$").FindSubmatch(text)
	conf := regexp.MustCompile(`\{user: (\w+), password: \$\w+`).ReplaceAll(block[1], []byte("{user: $1, password: $1"))
	configure := testenv.ServerOptions(t, string(conf))

	env := testenv.New(t, testenv.Options{
		NATS:    func(o *server.Options) { configure(o) },
		Bridge:  func(o *bridge.Options) { o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "bridge")) },
		Stopped: true,
	})
	env.NATS.Start()
	env.StartBridge().WaitReady()
	nc := env.Connect(nats.UserInfo("admin", "admin"))
	return &system{
		Env: env, t: t, client: clientOf(nc),
		dashboard: startDashboard(t, "--server", env.NATS.URL(), "--user", user, "--password", user, "--inbox-prefix", "_INBOX_"+user),
	}
}

// TestLookOnly: a role that may only look sees pages without actions, and NATS refuses what the pages do not offer.
func TestLookOnly(t *testing.T) {
	t.Parallel()
	s := withRoles(t, "viewer")
	s.push("jobs", 0, "a", "b")
	s.push("broken", 0, "c", "d")
	s.bury("broken", "out of paper")
	s.lengths("broken-dead", 1)
	ids := s.ids("jobs")

	b := newTab(t, s.url)
	b.open("/")
	b.figures("jobs", ".c-ready", "2")
	b.figures("broken", ".c-dead", "1")
	b.open("/bridges")
	b.seesIn("#bridges", "1 bridge", "yes")
	b.open("/dead")
	b.seesIn("#dead", "out of paper")
	for path, sees := range map[string]string{
		"/queue/pq/jobs": "Next to be served", "/queue/pq/jobs/items": "a", "/queue/pq/jobs/item/" + ids[0]: "Deliveries",
		"/dead": "out of paper", "/queue/pq/broken-dead/items": "out of paper",
	} {
		b.open(path)
		b.seesIn("main", sees)
		for _, action := range []string{"push", "pause", "resume", "config", "purge", "remove", "move", "redrive", "release"} {
			if n := b.count(fmt.Sprintf(`button[formaction$="/%[1]s"], form[action$="/%[1]s"]:has(button:not([form])), [hx-post$="/%[1]s"]`, action)); n > 0 {
				b.Errorf("%s offers to %s", path, action)
			}
		}
		if n := b.count("[name=ids]"); n > 0 {
			b.Errorf("%s lets items be selected", path)
		}
	}
	b.open("/queue/pq/jobs")
	b.press("#settings", "Settings")
	b.seesIn("#settings", "max_deliver")

	for action, fields := range map[string]url.Values{
		"push": {"value": {"x"}}, "pause": {"for": {"1h"}}, "resume": {}, "config": {"max_deliver": {"7"}}, "purge": {"name": {"jobs"}},
		"remove": {"ids": ids}, "move": {"ids": ids, "priority": {"7"}}, "redrive": {"ids": ids}, "release": {"ids": ids},
	} {
		if code, body := s.post("/queue/pq/jobs/"+action, fields); code < 400 || code >= 500 || !strings.Contains(body, "may not") {
			t.Errorf("%s: %d %s", action, code, mainOf(body))
		}
	}
	s.lengths("jobs", 2, 0, 0)
	if set := s.settings("jobs"); set.MaxDeliver != 0 || !set.PauseUntil.IsZero() {
		t.Errorf("settings %+v", set)
	}
}

// TestOperator: the role of docs/operations.md that also acts is refused nothing that the pages offer.
func TestOperator(t *testing.T) {
	t.Parallel()
	s := withRoles(t, "operator")
	ids := s.push("jobs", 0, "a", "b", "c")
	s.push("broken", 0, "d", "e")
	s.bury("broken", "out of paper")
	s.lengths("broken-dead", 1)
	_, err := s.client.PriorityQueue("jobs").LeaseMin(t.Context())
	must(t, err)
	dead := s.ids("broken-dead")

	for _, do := range []struct {
		path   string
		fields url.Values
	}{
		{"jobs/push", url.Values{"value": {"x"}, "priority": {"3"}}},
		{"jobs/pause", url.Values{"for": {"1h"}}},
		{"jobs/resume", url.Values{}},
		{"jobs/config", url.Values{"max_deliver": {"7"}}},
		{"jobs/release", url.Values{"ids": ids[:1]}},
		{"jobs/move", url.Values{"ids": ids[1:2], "priority": {"7"}}},
		{"jobs/remove", url.Values{"ids": ids[2:]}},
		{"broken-dead/redrive", url.Values{"ids": dead}},
		{"broken/purge", url.Values{"name": {"broken"}}},
	} {
		if code, body := s.post("/queue/pq/"+do.path, do.fields); code >= 400 {
			t.Errorf("%s: %d %s", do.path, code, mainOf(body))
		}
	}
	s.lengths("jobs", 3, 0, 0)
	s.lengths("broken", 0)
	s.lengths("broken-dead", 0)
	if code, body := s.post("/queue/q/mail/push", url.Values{"value": {"x"}}); code >= 400 {
		t.Errorf("push to a FIFO queue: %d %s", code, mainOf(body))
	}
	if set := s.settings("jobs"); set.MaxDeliver != 7 {
		t.Errorf("settings %+v", set)
	}
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")
	b.has(3, "[name=ids]")
}

// post sends a form as a page does, with its token, and returns the answer.
func (d *dashboard) post(path string, fields url.Values) (code int, body string) {
	d.t.Helper()
	page, text := d.send(d.request("GET", "/queue/pq/jobs/items", ""))
	token := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(text)
	if token == nil || len(page.Cookies()) == 0 {
		d.t.Fatalf("a page without a token: %s", text)
	}
	cookie := page.Cookies()[0]
	fields.Set("csrf", token[1])
	reply, body := d.send(d.request(http.MethodPost, path, fields.Encode(), "Content-Type", "application/x-www-form-urlencoded",
		"Cookie", cookie.Name+"="+cookie.Value))
	return reply.StatusCode, body
}

// mainOf returns the part of a page that is its own.
func mainOf(page string) string {
	if _, rest, ok := strings.Cut(page, "<main"); ok {
		page, _, _ = strings.Cut(rest, "</main>")
	}
	return page
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
