package dashboard

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// withRoles returns a system whose NATS server has the users of docs/access.md. Each password
// is the name. The dashboard logs in as one of them.
func withRoles(t *testing.T, user string) *system {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "access.md"))
	must(t, err)
	block := regexp.MustCompile("(?ms)^```conf\n(.*?)^```$").FindSubmatch(text)
	conf := regexp.MustCompile(`\{user: (\w+), password: \$\w+`).
		ReplaceAll(block[1], []byte("{user: $1, password: $1"))

	env := testenv.New(t, testenv.Options{
		NATS:    testenv.ServerOptions(t, string(conf)),
		Stopped: true,
		Bridge: func(o *bridge.Options) {
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "bridge"))
		},
	})

	env.NATS.Start()
	env.StartBridge().WaitReady()
	env.Conn = env.Connect(nats.UserInfo("admin", "admin"))

	return systemIn(t, env, "--user", user, "--password", user, "--inbox-prefix", "_INBOX_"+user)
}

// A role that may only look sees pages without actions, and NATS refuses what the
// pages do not offer.
func TestLookOnly(t *testing.T) {
	t.Parallel()

	s := withRoles(t, "viewer")
	s.push("jobs", 0, "a", "b")
	s.push("broken", 0, "c", "d")
	s.bury("broken", "out of paper")
	s.lengths("broken-dead", 1)
	ids := s.ids("jobs")
	actions := strings.Fields("push pause resume config purge remove move redrive release")

	b := newTab(t, s.url)
	b.open("/")
	b.figures("jobs", ".c-ready", "2")
	b.figures("broken", ".c-dead", "1")
	b.open("/bridges")
	b.seesIn("#bridges", "1 bridge", "yes")

	for path, sees := range map[string]string{
		"/queue/pq/jobs":                "Next to be served",
		"/queue/pq/jobs/items":          "a",
		"/dead":                         "out of paper",
		"/queue/pq/jobs/item/" + ids[0]: "Deliveries",
		"/queue/pq/broken-dead/items":   "out of paper",
	} {
		b.open(path)
		b.seesIn("main", sees)

		for _, action := range actions {
			b.has(0, fmt.Sprintf(`button[formaction$="/%[1]s"], [hx-post$="/%[1]s"],
				form[action$="/%[1]s"]:has(button:not([form]))`, action))
		}

		b.has(0, "[name=ids]")
	}

	b.open("/queue/pq/jobs")
	b.press("#settings", "Other settings")
	b.seesIn("#settings", "max_deliver")

	for _, action := range actions {
		fields := url.Values{
			"ids":                ids,
			"priority":           {"7"},
			"value":              {"x"},
			"name":               {"jobs"},
			"max_deliver":        {"7"},
			"before.max_deliver": {""},
		}

		code, body := s.post("/queue/pq/jobs/"+action, fields)
		if code < 400 || code >= 500 || !strings.Contains(body, "may not") {
			t.Errorf("%s: %d %s", action, code, mainOf(body))
		}
	}

	s.lengths("jobs", 2, 0, 0)
	if set := s.settings("jobs"); set.MaxDeliver != 0 || !set.PauseUntil.IsZero() {
		t.Errorf("settings %+v", set)
	}
}

// The role of docs/access.md that also acts is refused nothing that the pages
// offer.
func TestOperator(t *testing.T) {
	t.Parallel()

	s := withRoles(t, "operator")
	ids := s.push("jobs", 0, "a", "b", "c")
	s.push("broken", 0, "d", "e")
	s.bury("broken", "out of paper")
	s.lengths("broken-dead", 1)
	s.lease("jobs")
	letters := s.client.PriorityQueue("broken-dead")
	letter, _, err := letters.Get(t.Context(), s.ids("broken-dead")[0])
	must(t, err)
	dead := []string{letter.ID + "@" + letter.Place}

	for _, do := range []struct {
		path   string
		fields url.Values
	}{
		{"jobs/push", url.Values{"value": {"x"}, "priority": {"3"}}},
		{"jobs/pause", url.Values{"for": {"1h"}}},
		{"jobs/resume", url.Values{}},
		{"jobs/config", url.Values{"max_deliver": {"7"}, "before.max_deliver": {""}}},
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
	b.open("/queue/pq/jobs/items", `$$("[name=ids]").length == 3`)
}

// post sends a form as a page does, and returns the answer.
func (d *dashboard) post(path string, fields url.Values) (code int, body string) {
	d.t.Helper()
	reply, body := d.send("POST", path, fields.Encode(), "Content-Type",
		"application/x-www-form-urlencoded")
	return reply.StatusCode, body
}

// mainOf returns the part of a page that is its own.
func mainOf(page string) string {
	if _, rest, ok := strings.Cut(page, "<main"); ok {
		page, _, _ = strings.Cut(rest, "</main>")
	}
	return page
}
