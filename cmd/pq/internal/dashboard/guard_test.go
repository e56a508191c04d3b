package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

const secret = "correct horse battery staple"

// Every page has the headers that keep other sites, and items, from doing harm.
func TestSecurityHeaders(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Hosts = []string{"Queues.example", "other.example:99"} })
	b := r.browser()

	for _, path := range []string{
		"/", "/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/none", "/dead",
		"/bridges", "/none", "/static/none",
	} {
		h := b.get(path).Header
		if h.Get("Content-Security-Policy") != policy ||
			h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "same-origin" ||
			h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s has headers %v", path, h)
		}
	}

	for _, want := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
		"form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'",
	} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %s: want %s", policy, want)
		}
	}

	// A name that resolves to this address, in the hands of another site, opens nothing.
	_, port, _ := strings.Cut(strings.TrimPrefix(r.board.URL(), "http://"), ":")
	for host, want := range map[string]int{
		"localhost":              200,
		"localhost:" + port:      200,
		"LOCALHOST:" + port:      200,
		"127.0.0.1:" + port:      200,
		"[::1]:" + port:          200,
		"[::1]":                  200,
		"127.0.0.1:1":            200,
		"10.1.2.3:" + port:       200,
		"queues.example":         200,
		"queues.example:1":       200,
		"other.example:99":       200,
		"evil.example":           421,
		"evil.example:" + port:   421,
		"other.example":          421,
		"localhost.evil.example": 421,
		"127.0.0.1.evil.example": 421,
		"x.queues.example":       421,
		"127.0.0.1:1:2":          421,
	} {
		if a := b.get("/", "Host", host); a.StatusCode != want {
			t.Errorf("Host %s: status %d, want %d", host, a.StatusCode, want)
		}
	}
	b.get("/healthz", "Host", "evil.example").wants(t, http.StatusOK)
	b.get("/readyz", "Host", "10.0.0.7").wants(t, http.StatusOK)
}

// A form of another site does nothing.
func TestCrossSitePosts(t *testing.T) {
	r := newRig(t, nil)
	r.push("a")
	b := r.browser()

	const path, good = "/queue/pq/jobs/purge", "name=jobs"
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
		{"Origin", "http://evil.example"},
		{"Origin", "http://127.0.0.1:1"},
		{"Origin", "null"},
		{"Content-Type", "text/plain"},
		{"Content-Type", "multipart/form-data; boundary=x"},
		{"Host", "evil.example"},
	} {
		a := b.do(http.MethodPost, path, good, headers...)
		if a.StatusCode != 403 && a.StatusCode != 421 {
			t.Errorf("%v: status %d", headers, a.StatusCode)
		}
	}
	b.do(http.MethodPut, path, good).wants(t, http.StatusNotFound)
	b.get(path+"?"+good).wants(t, http.StatusNotFound)

	// Browsers give nothing of this to a page of another site.
	policy := b.get("/", "Sec-Fetch-Site", "cross-site").Header.Get("Cross-Origin-Resource-Policy")
	if policy != "same-origin" {
		t.Errorf("others may embed what is here: %q", policy)
	}

	if n := r.info().Ready; n != 1 {
		t.Fatalf("%d items are left", n)
	}
	b.do(http.MethodPost, path, good, "Sec-Fetch-Site", "same-origin", "Origin",
		r.board.URL()).wants(t, http.StatusOK)

	if n := r.info().Ready; n != 0 {
		t.Errorf("%d items are left", n)
	}
}

// With a token, nothing is shown before somebody has logged in: pages lead to the form for that,
// and forms stay as they are. Only probes get by.
func TestLogin(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = secret })
	r.push("a")
	b := r.browser()

	for _, path := range []string{healthPath, readyPath} {
		other := b.do(http.MethodPost, path, "", "Host",
			"evil.example").wants(t, http.StatusMisdirectedRequest)
		other.lacks(t, "nats://", "<html")
		b.do(http.MethodPost, path, "").wants(t, http.StatusUnauthorized).lacks(t, "nats://")

		b.get(path).wants(t, http.StatusOK)
	}

	for _, path := range []string{"/", "/queue/pq/jobs", "/dead", "/none"} {
		a := b.get(path)
		if a.StatusCode != http.StatusSeeOther ||
			!strings.HasPrefix(a.Header.Get("Location"), "/login") {
			t.Errorf("%s: status %d, %s", path, a.StatusCode, a.Header.Get("Location"))
		}
	}
	b.do(http.MethodHead, "/dead", "").wants(t, http.StatusSeeOther)
	b.post("/queue/pq/jobs/purge", "name", "jobs").wants(t, http.StatusUnauthorized)

	b.get("/login").wants(t, http.StatusOK, `type="password"`)
	b.do(http.MethodPost, "/queue/pq/jobs/push", "value=x").wants(t, http.StatusUnauthorized,
		"log in first, in another tab")
	b.post("/login", "token", secret+"x").wants(t, http.StatusUnauthorized, errToken.Error())

	a := b.post("/login", "token", secret+"\n", "next", "/bridges").wants(t, http.StatusSeeOther)
	if a.Header.Get("Location") != "/bridges" ||
		strings.Contains(a.Header.Get("Set-Cookie"), "Secure") {
		t.Errorf("headers %v", a.Header)
	}

	b.sees("/", "jobs", "Log out")
	set := a.Header.Get("Set-Cookie")
	if !strings.Contains(set, "SameSite=Lax") || !strings.Contains(set, "HttpOnly") {
		t.Errorf("the cookie is %q", set)
	}
	r.browser().get("/").wants(t, http.StatusSeeOther)

	secure := b.do(http.MethodPost, "/login", "token="+url.QueryEscape(secret), "X-Forwarded-Proto",
		"https")
	if !strings.Contains(secure.Header.Get("Set-Cookie"), "Secure") {
		t.Errorf("behind HTTPS the cookie is %q", secure.Header.Get("Set-Cookie"))
	}

	b.post("/login", "token", secret)

	cookie := b.Jar.Cookies(a.Request.URL)[0].String()
	r.browser().get("/", "Cookie", cookie).wants(t, http.StatusOK)
	b.post("/logout").wants(t, http.StatusSeeOther)
	b.get("/").wants(t, http.StatusSeeOther)
	r.browser().get("/", "Cookie", cookie).wants(t, http.StatusSeeOther) // whoever kept it
	if !strings.Contains(r.log.String(), "msg=login") {
		t.Error("logins are not logged")
	}
}

// A login leads to pages of the dashboard only.
func TestNextAfterLogin(t *testing.T) {
	for next, want := range map[string]string{
		"/dead?x=1":           "/dead?x=1",
		"":                    "/",
		"//evil.example":      "/",
		"http://evil.example": "/",
		`/\evil.example`:      "/",
		"javascript:alert(1)": "/",
		"dead":                "/",
	} {
		if got := localPath(next); got != want {
			t.Errorf("%q leads to %q", next, got)
		}
	}
}

// Behind a proxy, the user is whom the proxy names, and nobody else gets in.
func TestProxyUser(t *testing.T) {
	r := newRig(t, func(o *Options) { o.ProxyUser = "X-User" })
	b := r.browser()
	b.get("/").wants(t, http.StatusUnauthorized)
	b.get("/", "X-User", " ").wants(t, http.StatusUnauthorized)
	b.get("/", "X-User", strings.Repeat("x", maxUser+1)).wants(t, http.StatusUnauthorized)
	b.get("/queue/pq/jobs", "X-User", "ann").wants(t, http.StatusOK, "ann")
	b.get("/queue/pq/jobs", "X-User", "ann <b>").wants(t, http.StatusOK, "ann &lt;b&gt;")
	b.do(http.MethodPost, "/queue/pq/jobs/push", "value=x", "X-User", "ann").wants(t, http.StatusOK)
	if !strings.Contains(r.log.String(), "action=push queue=pq.jobs user=ann") {
		t.Errorf("logged %s", r.log)
	}
}

// The bridges log on whose behalf the dashboard acts, whatever a proxy calls the user.
func TestBridgesLogWhoActs(t *testing.T) {
	t.Parallel()

	var log harness.Transcript
	env := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}})
	r := serve(t, env, env.Connect(nats.Name("pq")), func(o *Options) { o.ProxyUser = "X-User" })
	b := r.browser()

	for user, want := range map[string]string{
		"ann":                    `client="ann by dashboard on `,
		`ann" client=bob`:        `client="ann\" client=bob by dashboard on `,
		strings.Repeat("x", 200): `client="` + strings.Repeat("x", 64) + ` by dashboard on `,
	} {
		r.push("x")
		b.do(http.MethodPost, "/queue/pq/jobs/purge", "name=jobs", "X-User",
			user).wants(t, http.StatusOK)

		text := log.String()
		if !strings.Contains(text, "msg=action action=purge queue=pq.jobs items=1 "+want) {
			t.Errorf("%q: logged %s", user, text)
		}
	}
}

// Who is not sure to be alone on the machine, needs a login.
func TestOpenAddressIsRefused(t *testing.T) {
	t.Parallel()

	env := testenv.New(t, testenv.Options{})
	o := Options{Conn: env.Conn, Grammar: env.Grammar, Log: slog.New(slog.DiscardHandler)}

	for _, o.Listen = range []string{"[::]:0", ":0", "0.0.0.0:0"} {
		if _, err := New(o); !errors.Is(err, ErrOpen) {
			t.Errorf("%s: %v", o.Listen, err)
		}
	}

	o.ProxyUser = "X-User"
	board, err := New(o)
	must(t, err)

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("at once"))
	must(t, board.Run(ctx))
}

// Dead letters that the role may not read leave the others on the page, as does a role without
// discovery. Who may list one kind of queues sees those, and who may list none is told so.
func TestRoleOfSomeQueues(t *testing.T) {
	t.Parallel()

	r := newRigAs(t, "pq.list", "*.*.info", "pq.jobs-dead.items")
	queues := client.New(r.Conn, client.WithTimeout(testenv.Patience))

	for name, reason := range map[string]string{"another": "hidden", "jobs": "no such user"} {
		_, err := queues.PriorityQueue(name).Push(t.Context(), 0, []byte("x"))
		must(t, err)
		d, err := queues.PriorityQueue(name).Lease(t.Context())
		must(t, err)
		must(t, d.Term(t.Context(), reason))
	}

	b := r.browser()
	b.sees("/", `href="/queue/pq/jobs-dead/items"`, `class="connected"`)
	b.sees("/dead", "no such user", "may not send requests to pq.another-dead.items")
	b.sees("/bridges", "may not send requests to $SRV.STATS")
	b.sees("/queue/pq/jobs", "Not known: the NATS user may not send requests to $SRV.STATS")

	r = newRigAs(t, "*.*.info", "$SRV.>")
	r.push("a")
	r.browser().sees("/", "may not send requests to pq.list").lacks(t, `href="/queue/pq/jobs"`)
}

// What the server refuses, it is not asked again for a while, however many queues there are.
func TestRefusalsAreRemembered(t *testing.T) {
	t.Parallel()

	r := newRigAs(t, "*.list")
	r.push("a")
	g, subject := r.board.gateway, "pq.jobs.info"

	_, err := g.info(context.Background(), queueRef{"pq", "jobs"})
	if deniedBy(err) == "" {
		t.Fatalf("%v", err)
	}

	again := g.send(context.Background(), g.slots, subject, func(context.Context) error {
		t.Error("the server is asked again")
		return nil
	})
	if deniedBy(again) != deniedBy(err) || g.refusal("pq.other.info") != nil {
		t.Errorf("%v, then %v", err, again)
	}

	now := time.Now()
	f := monitor{
		queues:  map[queueRef]*queueState{{"pq", "a"}: {listed: true}},
		refused: now.Add(-time.Second),
	}
	if list := f.due(now); len(list) > 0 {
		t.Errorf("due are %v", list)
	}

	if list := f.due(now.Add(rightTime)); len(list) != 1 {
		t.Errorf("a minute later due are %v", list)
	}
}

// What a search does not find, it may have in other letters, or have had.
func TestNothingMatches(t *testing.T) {
	r := newRig(t, nil)
	ids := r.push("ACME")
	b := r.browser()
	b.get("/queue/pq/jobs/items")

	search := func(match string) string {
		to := b.post("/queue/pq/jobs/search", "match", match).Header.Get("Location")
		r.board.searches.work.Wait()
		return to
	}
	b.get(search("acme")).wants(t, 200, "Nothing matches. The search is case-sensitive.")

	found := search("ACME")
	_, id, _ := strings.Cut(found, "?")
	item := b.get("/queue/pq/jobs/item/"+ids[0]+"?"+id).wants(t, 200, `href="`+found+`" data-up`,
		`as=hex&amp;`+id)

	back := regexp.MustCompile(`name="back" value="(.*?)"`).FindStringSubmatch(item.body)[1]
	b.post("/queue/pq/jobs/remove", "ids", ids[0], "back", back).wants(t, 200,
		`href="`+found+`" data-close`)

	b.get(found).wants(t, 200,
		"Found <strong>1 item</strong>, moved or gone since. Looked at all 1.").lacks(t, "matches")
}

// An action is about as many items as the dialog has said, whatever a search has found since.
func TestCountOfDialog(t *testing.T) {
	r := newRig(t, nil)
	ids := r.push("a", "b", "c")
	f := r.board.searches.addFound(queueRef{"pq", "jobs"}, itemsFilter{}, ids[:1])
	b := r.browser()
	b.get("/queue/pq/jobs/items")
	dialog := b.post("/queue/pq/jobs/remove", "search", f.id, "dry",
		"1").wants(t, 200, "Remove 1 item")
	count := regexp.MustCompile(`name="count" value="(.*?)"`).FindStringSubmatch(dialog.body)

	f.mu.Lock()
	f.refs = ids
	f.mu.Unlock()

	b.post("/queue/pq/jobs/remove", "search", f.id, "count", count[1]).wants(t, 200)
	if n := r.info().Ready; n != 2 {
		t.Errorf("%d items are left", n)
	}
}
