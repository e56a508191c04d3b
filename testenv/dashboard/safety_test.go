package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// evil is a site of somebody else in the same browser. Its page tries to do things to the
// dashboard.
func evil(t *testing.T, page string) (address string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!doctype html><body>evil"+page)
	}))

	t.Cleanup(site.Close)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(site.URL, "http://"))
	must(t, err)

	return "http://evil.test:" + port // the browser finds every name here
}

// A page of another site cannot do or read anything, though the person has the
// dashboard open, too.
func TestCrossSite(t *testing.T) {
	t.Parallel()

	s := newSystem(t)
	ids := s.push("jobs", 0, "a", "b")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")
	b.has(2, "#items tbody tr")

	// Forms.
	for _, host := range []string{s.url, strings.Replace(s.url, "127.0.0.1", "localhost", 1)} {
		c := b.another()
		c.expect("status of 4")

		c.open(evil(t, fmt.Sprintf(
			`<form method=post action="%s/queue/pq/jobs/remove"><input name=ids value="%s"></form>
			<script>document.forms[0].submit()</script>`, host, ids[0])))
		c.until(`!location.host.startsWith("evil") && document.readyState == "complete"`)
		if text := c.text("body"); !strings.Contains(text, "site") {
			t.Errorf("a form of another site is answered with %q", text)
		}
	}

	s.lengths("jobs", 2)

	// Scripts: requests in all their kinds, frames, images, windows.
	c := b.another()
	c.expect("") // whatever it complains of

	c.open(evil(t, fmt.Sprintf(`<script>
		const base = %q, body = new URLSearchParams({ids: %q})
		const tries = ["no-cors", "cors"].flatMap(mode => [
			fetch(base + "/queue/pq/jobs/remove",
				{method: "POST", mode, credentials: "include", body}),
			fetch(base + "/queue/pq/jobs/items", {mode, credentials: "include"}),
		])
		const load = element => new Promise(done => {
			element.onload = () => done("loaded")
			element.onerror = () => done("error")
			document.body.append(element)
		})
		const frame = Object.assign(document.createElement("iframe"), {src: base + "/"})
		const script = Object.assign(document.createElement("script"),
			{src: base + "/queue/pq/jobs/items"})
		tries.push(load(frame)
			.then(() => frame.contentDocument?.body.innerText ?? Promise.reject()))
		tries.push(load(script).then(s => s == "loaded" ? s : Promise.reject()))
		const brought = one => one.status == "fulfilled" && one.value?.type != "opaque"
		window.result = Promise.allSettled(tries).then(all => all.filter(brought).length)
	</script>`, s.url, ids[0])))
	if n := eval[int](c, "window.result"); n != 0 {
		t.Errorf("%d of the attempts of another site brought something", n)
	}

	s.lengths("jobs", 2)
}

// A name of another site that leads to this address is none of the dashboard's.
func TestRebinding(t *testing.T) {
	t.Parallel()

	s := newSystem(t, "--host", "queues.example.com")
	s.push("jobs", 0, "secret-value")

	b := newTab(t, s.url)
	b.expect("status of 4")
	b.expect("Cross-Origin-Opener-Policy") // which counts with HTTPS

	at := func(host string) string {
		return strings.Replace(s.url, "127.0.0.1", host, 1) + "/queue/pq/jobs/items"
	}
	b.open(at("evil.test"))
	b.sees("evil.test")

	if text := b.text("body"); strings.Contains(text, "secret-value") {
		t.Error("it shows the items under another name")
	}

	for _, host := range []string{"queues.example.com", "localhost"} {
		b.open(at(host))
		b.has(1, "#items tbody tr")
	}
}

const token = "a token of enough characters"

// Pages are shown only after the token was typed, and no longer after the logout.
func TestToken(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
	s := newSystem(t, "--token-file", path)
	s.push("jobs", 0, "secret-value")

	b := newTab(t, s.url)
	b.expect("status of 4")

	b.open("/queue/pq/jobs")
	b.sees("Log in")
	b.fill("[name=token]", "not "+token)
	b.press("main", "Log in")
	b.sees("not the token")
	b.fill("[name=token]", token)
	b.press("main", "Log in")
	b.seesIn("footer", "Log out")
	b.open("/queue/pq/jobs")
	b.seesIn("#totals", "Ready\n1")

	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see the cookie %s", cookies)
	}

	b.press("footer", "Log out")
	b.sees("Log in")
	b.open("/queue/pq/jobs")
	b.sees("Log in")
}
