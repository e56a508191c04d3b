package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

// TestPolicy: what each answer says to browsers.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	ids := s.push("jobs", 0, "x")
	for _, path := range []string{"/", "/dead", "/bridges", "/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/" + ids[0], "/queue/pq/jobs/item/" + ids[0] + "/value", "/nothing", "/static/nothing"} {
		reply, _ := s.send(s.request("GET", path, ""))
		policy := reply.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: policy %q: want %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || reply.Header.Get("X-Content-Type-Options") != "nosniff" || reply.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, reply.Header)
		}
		for _, cookie := range reply.Cookies() {
			if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
				t.Errorf("%s: cookie %v", path, cookie)
			}
		}
	}
}

// evil is a site of somebody else in the same browser. Its page tries to do things to the dashboard.
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

// TestCrossSite: a page of another site cannot do or read anything, though the person has the dashboard open, too.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	ids := s.push("jobs", 0, "a", "b")
	b := newTab(t, s.url)
	b.open("/queue/pq/jobs/items")
	b.has(2, "#items tbody tr")
	token := eval[string](b, `document.querySelector("[name=csrf]").value`)

	// Forms, with and without a token that was somehow guessed.
	for _, host := range []string{s.url, strings.Replace(s.url, "127.0.0.1", "localhost", 1)} {
		for _, csrf := range []string{"", token} {
			c := b.another()
			c.expect("status of 4")
			c.open(evil(t, fmt.Sprintf(`<form method=post action="%s/queue/pq/jobs/remove"><input name=ids value="%s"><input name=csrf value="%s"></form><script>document.forms[0].submit()</script>`,
				host, ids[0], csrf)))
			c.until(`!location.host.startsWith("evil")`)
			c.until(`document.readyState == "complete"`)
			if text := c.text("body"); !strings.Contains(text, "site") && !strings.Contains(text, "form") {
				t.Errorf("a form of another site is answered with %q", text)
			}
		}
	}
	s.lengths("jobs", 2)

	// Scripts: requests in all their kinds, frames, images, windows.
	c := b.another()
	for _, text := range []string{"CORS", "ERR_", "frame", "Refused", "status of 4", "MIME", "Cross-Origin", "violates", "blocked"} {
		c.expect(text)
	}
	c.open(evil(t, fmt.Sprintf(`<script>
		const base = %q, form = new URLSearchParams({ids: %q, csrf: %q})
		const tries = ["no-cors", "cors"].flatMap(mode => [
			fetch(base + "/queue/pq/jobs/remove", {method: "POST", mode, credentials: "include", body: form}),
			fetch(base + "/queue/pq/jobs/items", {mode, credentials: "include"}),
			fetch(base + "/events?page=queues", {mode, credentials: "include"}),
		])
		const load = element => new Promise(done => { element.onload = () => done("loaded"); element.onerror = () => done("error"); document.body.append(element) })
		const frame = Object.assign(document.createElement("iframe"), {src: base + "/"})
		const script = Object.assign(document.createElement("script"), {src: base + "/queue/pq/jobs/items"})
		tries.push(load(frame).then(() => frame.contentDocument?.body.innerText ?? Promise.reject()), load(script).then(s => s == "loaded" ? s : Promise.reject()))
		window.result = Promise.allSettled(tries).then(all => all.filter(one => one.status == "fulfilled" && one.value?.type != "opaque").length)
	</script>`, s.url, ids[0], token)))
	if n := eval[int](c, "window.result"); n != 0 {
		t.Errorf("%d of the attempts of another site brought something", n)
	}
	s.lengths("jobs", 2)
}

// TestRebinding: a name of another site that leads to this address is none of the dashboard's.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "--host", "queues.example.com")
	s.push("jobs", 0, "secret-value")
	b := newTab(t, s.url)
	b.expect("status of 4")
	b.open(strings.Replace(s.url, "127.0.0.1", "evil.test", 1) + "/queue/pq/jobs/items")
	b.sees("evil.test")
	if text := b.text("body"); strings.Contains(text, "secret-value") {
		t.Error("it shows the items under another name")
	}
	b.open(strings.Replace(s.url, "127.0.0.1", "queues.example.com", 1) + "/queue/pq/jobs/items")
	b.has(1, "#items tbody tr")
	b.open(strings.Replace(s.url, "127.0.0.1", "localhost", 1) + "/queue/pq/jobs/items")
	b.has(1, "#items tbody tr")

	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:1": 200, "[::1]:8423": 200, "localhost:8423": 200, "queues.example.com": 200, "QUEUES.example.com:443": 200,
		"evil.test": 421, "localhost.evil.test": 421, "127.0.0.1.evil.test": 421, "queues.example.com.evil.test": 421, "xqueues.example.com": 421, "evil.test:8423": 421,
	} {
		if reply, body := s.send(s.request("GET", "/", "", "Host", host)); reply.StatusCode != want {
			t.Errorf("Host %s: %d, want %d\n%.200s", host, reply.StatusCode, want, body)
		}
		if reply, _ := s.send(s.request("GET", "/healthz", "", "Host", host)); reply.StatusCode != 200 {
			t.Errorf("Host %s: /healthz %d", host, reply.StatusCode)
		}
	}
}

// TestPostsAreChecked: without a browser, what a POST needs.
func TestPostsAreChecked(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	ids := s.push("jobs", 0, "a")
	reply, body := s.send(s.request("GET", "/queue/pq/jobs/items", ""))
	cookie := reply.Cookies()[0]
	token := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(body)[1]
	const form, kind = "application/x-www-form-urlencoded", "Content-Type"
	with := cookie.Name + "=" + cookie.Value
	fields := url.Values{"ids": ids, "csrf": {token}}.Encode()
	host := strings.TrimPrefix(s.url, "http://")
	for name, r := range map[string]*http.Request{
		"no token":         s.request("POST", "/queue/pq/jobs/remove", "ids="+ids[0], kind, form, "Cookie", with),
		"wrong token":      s.request("POST", "/queue/pq/jobs/remove", fields+"x", kind, form, "Cookie", with),
		"no cookie":        s.request("POST", "/queue/pq/jobs/remove", fields, kind, form),
		"another's cookie": s.request("POST", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", cookie.Name+"="+strings.Repeat("A", len(cookie.Value))),
		"no form":          s.request("POST", "/queue/pq/jobs/remove", `{"ids":["`+ids[0]+`"]}`, kind, "text/plain", "Cookie", with, "X-CSRF-Token", token),
		"another origin":   s.request("POST", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", with, "Origin", "http://evil.test"),
		"null origin":      s.request("POST", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", with, "Origin", "null"),
		"another port":     s.request("POST", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", with, "Origin", "http://127.0.0.1:1"),
		"cross-site":       s.request("POST", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", with, "Sec-Fetch-Site", "cross-site"),
		"a GET":            s.request("GET", "/queue/pq/jobs/remove?"+fields, "", "Cookie", with),
		"a PUT":            s.request("PUT", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", with),
		"in the address":   s.request("POST", "/queue/pq/jobs/remove?"+fields, "", kind, form, "Cookie", with),
		"too many fields":  s.request("POST", "/queue/pq/jobs/remove", fields+strings.Repeat("&ids=x", 3000), kind, form, "Cookie", with),
		"too large":        s.request("POST", "/queue/pq/jobs/remove", fields+"&x="+strings.Repeat("x", 1<<20), kind, form, "Cookie", with),
	} {
		if reply, body := s.send(r); reply.StatusCode < 400 || reply.StatusCode >= 500 {
			t.Errorf("%s: %d %.200s", name, reply.StatusCode, body)
		}
	}
	s.lengths("jobs", 1)

	right := s.request("POST", "/queue/pq/jobs/remove", fields, kind, form, "Cookie", with, "Origin", "http://"+host)
	if reply, body := s.send(right); reply.StatusCode >= 400 {
		t.Errorf("the right request: %d %.500s", reply.StatusCode, body)
	}
	s.lengths("jobs", 0)
}

// TestAnotherAddress: only the loopback interface may be open to everybody.
func TestAnotherAddress(t *testing.T) {
	t.Parallel()
	env := testenv.New(t, testenv.Options{})
	short := filepath.Join(t.TempDir(), "short")
	must(t, os.WriteFile(short, []byte("abc\n"), 0o600))
	for _, args := range [][]string{
		{"--listen", "0.0.0.0:0"}, {"--listen", ":0"}, {"--listen", "[::]:0"},
		{"--listen", "0.0.0.0:0", "--token-file", "/nonexistent"},
		{"--listen", "0.0.0.0:0", "--token-file", short},
		{"--trust-proxy-user", "X Y"},
	} {
		d := runDashboard(t, append([]string{"--server", env.NATS.URL()}, args...)...)
		if d.url != "" || d.err == nil || d.log.String() == "" {
			t.Errorf("%q: it listens at %q, %v\n%s", args, d.url, d.err, d.log.String())
		}
	}
}

const token = "a token of enough characters"

func TestToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
	s := newSystem(t, "--token-file", path, "--listen", "0.0.0.0:0")
	s.push("jobs", 0, "secret-value")

	for _, path := range []string{"/", "/queue/pq/jobs", "/queue/pq/jobs/items", "/events?page=queues", "/bridges", "/dead"} {
		if reply, body := s.send(s.request("GET", path, "")); reply.StatusCode < 300 || strings.Contains(body, "secret-value") {
			t.Errorf("%s without a login: %d %.200s", path, reply.StatusCode, body)
		}
	}

	b := newTab(t, s.url)
	b.expect("status of 4")
	b.open("/queue/pq/jobs")
	b.sees("Log in")
	b.fill("[name=token]", "not "+token)
	b.press("main", "Log in")
	b.sees("not the token")
	b.fill("[name=token]", token)
	b.press("main", "Log in")
	b.until(`document.querySelector("footer").innerText.includes("Log out")`)
	b.open("/queue/pq/jobs")
	b.seesIn("#totals", "Ready\n1")
	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see the cookie %s", cookies)
	}
	b.press("footer", "Log out")
	b.sees("Log in")
	b.open("/queue/pq/jobs")
	b.sees("Log in")

	// Somebody who guesses has to wait.
	page, body := s.send(s.request("GET", "/login", ""))
	cookie := page.Cookies()[0]
	csrf := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(body)[1]
	slowed := false
	for i := range 50 {
		fields := url.Values{"csrf": {csrf}, "token": {fmt.Sprint("guess ", i)}}.Encode()
		reply, _ := s.send(s.request("POST", "/login", fields, "Content-Type", "application/x-www-form-urlencoded", "Cookie", cookie.Name+"="+cookie.Value))
		slowed = slowed || reply.StatusCode == http.StatusTooManyRequests
	}
	if !slowed {
		t.Error("50 guesses at once")
	}
}

func TestProxyUser(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "--trust-proxy-user", "X-User", "--listen", "0.0.0.0:0")
	ids := s.push("jobs", 0, "a")
	if reply, body := s.send(s.request("GET", "/queue/pq/jobs/items", "")); reply.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a user: %d %.200s", reply.StatusCode, body)
	}
	reply, body := s.send(s.request("GET", "/queue/pq/jobs/items", "", "X-User", "ann <b>"))
	if reply.StatusCode != 200 || !strings.Contains(body, "ann &lt;b&gt;") {
		t.Errorf("with a user: %d %.200s", reply.StatusCode, body)
	}
	cookie := reply.Cookies()[0]
	csrf := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(body)[1]
	s.send(s.request("POST", "/queue/pq/jobs/remove", url.Values{"ids": ids, "csrf": {csrf}}.Encode(), "X-User", "ann",
		"Content-Type", "application/x-www-form-urlencoded", "Cookie", cookie.Name+"="+cookie.Value))
	s.lengths("jobs", 0)
	s.logged("ann", "remove", "jobs", "1")
}
