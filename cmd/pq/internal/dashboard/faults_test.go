package dashboard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Only probes get by without a login and with every name.
func TestProbesOpenNothing(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = secret })
	b := r.browser()
	for _, path := range []string{healthPath, readyPath} {
		a := b.do(http.MethodPost, path, "", "Host", "evil.example").wants(t, http.StatusMisdirectedRequest)
		a.lacks(t, "nats://", "<html")
		b.do(http.MethodPost, path, "").wants(t, http.StatusUnauthorized).lacks(t, "nats://")
		b.get(path).wants(t, http.StatusOK)
	}
}

// Who has not logged in keeps nobody out by sending slowly, and sends little.
func TestSlowForms(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = secret })
	address := strings.TrimPrefix(r.board.URL(), "http://")
	for range maxRequests + 1 {
		c, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", address)
		must(t, err)
		_, err = io.ReadFull(c, make([]byte, 12)) // the server reads the form now
		must(t, err)
	}
	b := r.browser()
	b.get("/login").wants(t, http.StatusOK)
	b.do(http.MethodPost, "/static/push", "csrf="+b.token+"&value="+strings.Repeat("x", maxOpenBody)).wants(t, http.StatusRequestEntityTooLarge)
}

// When the session is over, pages lead to the form to log in, and forms stay as they are.
func TestSessionIsOver(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = secret })
	b := r.browser()
	b.get("/login")
	b.do(http.MethodHead, "/dead", "").wants(t, http.StatusSeeOther)
	a := b.do(http.MethodPost, "/queue/pq/jobs/push", "csrf="+b.token, "HX-Request", "true").wants(t, http.StatusUnauthorized, "log in first, in another tab")
	if a.Header.Get("HX-Redirect") != "" {
		t.Error("the form is left")
	}
	if b.get("/dead", "HX-Request", "true").Header.Get("HX-Redirect") != loginPath {
		t.Error("a list that asks for itself does not lead to the login")
	}
}

// An action is about as many items as the dialog has said, whatever a search has found since.
func TestCountOfDialog(t *testing.T) {
	r := newRig(t, nil)
	ids := r.push("a", "b", "c")
	s := r.board.searches
	f := &search{id: "s", queue: queueRef{"pq", "jobs"}, cancel: func() {}, ids: ids[:1]}
	s.mu.Lock()
	s.all["s"] = f
	s.mu.Unlock()
	b := r.browser()
	b.get("/queue/pq/jobs/items")
	dialog := b.post("/queue/pq/jobs/remove", "search", "s", "dry", "1").wants(t, 200, "Remove 1 item")
	count := regexp.MustCompile(`name="count" value="(.*?)"`).FindStringSubmatch(dialog.body)

	f.mu.Lock()
	f.ids = ids
	f.mu.Unlock()
	b.post("/queue/pq/jobs/remove", "search", "s", "count", count[1]).wants(t, 200)
	if n := r.info().Ready; n != 2 {
		t.Errorf("%d items are left", n)
	}
}

// Dead letters that the role may not read leave the others on the page, as does a role without
// discovery.
func TestRoleOfSomeQueues(t *testing.T) {
	t.Parallel()
	r := newRigAs(t, "*.list", "*.*.info", "pq.jobs-dead.items")
	ctx := context.Background()
	other := client.New(r.Conn).PriorityQueue("another")
	_, err := other.Push(ctx, 0, []byte("x"))
	must(t, err)
	d, err := other.LeaseMin(ctx)
	must(t, err)
	must(t, d.Term(ctx, "hidden"))
	r.push("y")
	d, err = r.jobs.LeaseMin(ctx)
	must(t, err)
	must(t, d.Term(ctx, "no such user"))

	b := r.browser()
	b.sees("/dead", "no such user", "may not send requests to pq.another-dead.items")
	b.sees("/bridges", "may not send requests to $SRV.STATS")
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
	again := g.send(context.Background(), subject, func(context.Context) error {
		t.Error("the server is asked again")
		return nil
	})
	if deniedBy(again) != deniedBy(err) || g.refusal("pq.other.info") != nil {
		t.Errorf("%v, then %v", err, again)
	}

	now := time.Now()
	f := figures{queues: map[queueRef]*queueState{{"pq", "a"}: {listed: true}}, refused: now.Add(-time.Second)}
	if list := f.due(now); len(list) > 0 {
		t.Errorf("due are %v", list)
	}
	if list := f.due(now.Add(rightTime)); len(list) != 1 {
		t.Errorf("a minute later due are %v", list)
	}
}

// A reason stays what it is from scan to scan, and says when it is of a part of the dead letters.
func TestReasonsAreKept(t *testing.T) {
	r := newRig(t, nil)
	s := r.board.dead
	jobs := queueRef{"pq", "jobs-dead"}
	letter := client.StoredItem{ID: "1", Headers: map[string][]string{
		subjects.HeaderDeadQueue: {"jobs"}, subjects.HeaderDeadReason: {"broken"}, subjects.HeaderDeadAt: {time.Now().UTC().Format(subjects.TimeLayout)},
	}}
	scan := func(items ...client.StoredItem) {
		s.mu.Lock()
		s.groups = map[string]*deadGroup{}
		s.started = time.Now()
		s.mu.Unlock()
		s.note(jobs, items, true)
		s.mu.Lock()
		s.keep()
		s.mu.Unlock()
	}
	scan(letter)
	id := s.current().Reasons[0].Search
	scan()
	scan()
	found := s.find(id)
	if found == nil || len(found.matches()) != 1 {
		t.Fatalf("%+v", found)
	}
	r.browser().get("/queue/pq/jobs-dead/items?search="+id).wants(t, 200, "of the first 10,000 dead letters")
}

// What a search does not find, it may have in other letters, or have had.
func TestNothingMatches(t *testing.T) {
	r := newRig(t, nil)
	ids := r.push("ACME")
	b := r.browser()
	b.get("/queue/pq/jobs/items")
	search := func(match string) string {
		to := b.post("/search", "kind", "pq", "name", "jobs", "match", match).Header.Get("Location")
		r.board.searches.work.Wait()
		return to
	}
	b.get(search("acme")).wants(t, 200, "Nothing matches. Upper and lower case differ.")

	found := search("ACME")
	_, id, _ := strings.Cut(found, "?")
	item := b.get("/queue/pq/jobs/item/"+ids[0]+"?"+id).wants(t, 200, `href="`+found+`" data-up`, `as=hex&amp;`+id)
	back := regexp.MustCompile(`name="back" value="(.*?)"`).FindStringSubmatch(item.body)[1]
	b.post("/queue/pq/jobs/remove", "ids", ids[0], "back", back).wants(t, 200, `href="`+found+`" data-close`)
	b.get(found).wants(t, 200, "They are no longer here.")
	b.post("/queue/pq/jobs/remove", "ids", ids[0], "back", "//evil.example").lacks(t, "evil")
}
