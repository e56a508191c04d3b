package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// Whoever may only look sees pages without actions, and cannot act with forms of their own either.
// Finding that out changes nothing.
func TestReadOnlyRole(t *testing.T) {
	t.Parallel()
	r := newRigAs(t, "*.*.info", "*.list", "*.*.items", "*.*.get", "$SRV.>")
	id := r.push("look at me")[0]
	before := r.info()
	b := r.browser()
	for _, path := range []string{"/", "/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/" + id, "/dead", "/bridges"} {
		b.get(path).wants(t, 200).lacks(t, "/push", "/config", "/pause", "/purge", "/remove", "/move", "/redrive", "/release")
	}
	b.get("/queue/pq/jobs/items").wants(t, 200, "look at me")

	for action, verb := range map[string]string{
		"push": "push", "config": "config", "pause": "config", "resume": "config", "purge": "purge",
		"remove": "remove", "move": "move", "redrive": "redrive", "release": "release",
	} {
		b.post("/queue/pq/jobs/"+action, "ids", id, "priority", "5", "name", "jobs", "value", "x", "max_deliver", "7").
			wants(t, http.StatusForbidden, "may not send requests to pq.jobs."+verb)
	}
	after := r.info()
	if fmt.Sprintf("%+v", after.Settings) != fmt.Sprintf("%+v", before.Settings) || after.Ready != 1 {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// Who may do nothing, or only list, or cannot receive replies, gets pages that say so.
func TestBlindRole(t *testing.T) {
	t.Parallel()
	env := testenv.New(t, testenv.Options{NATS: testenv.ServerOptions(t, `authorization { users = [
		{user: all, password: all}
		{user: lister, password: lister, permissions: {publish: ["pq.list", "q.list"], subscribe: "_INBOX.>"}}
		{user: nobody, password: nobody, permissions: {publish: "nothing", subscribe: "_INBOX.>"}}
		{user: deaf, password: deaf, permissions: {publish: ">", subscribe: "nothing"}}
	] }
	no_auth_user: all`)})
	for user, sees := range map[string]string{"lister": "jobs", "nobody": "may not", "deaf": "cannot receive replies"} {
		r := serve(t, env, env.Connect(nats.UserInfo(user, user)), func(o *Options) { o.Timeout = time.Second })
		id := r.push("secret-value")[0]
		b := r.browser()
		b.sees("/", sees)
		for _, path := range []string{"", "/items", "/item/" + id} {
			b.get("/queue/pq/jobs"+path).lacks(t, "secret-value", "/push", "/config", "/pause", "/purge", "formaction")
		}
		b.get("/dead").wants(t, 200).lacks(t, "formaction")
		b.get("/bridges").wants(t, 200)
	}
}

// Each right is found out by itself, and asking for it changes nothing. If the server says what the
// user may do, no bridge is asked.
func TestRightsAreFoundOut(t *testing.T) {
	for _, more := range [][]string{nil, {"$SYS.REQ.USER.INFO"}} {
		t.Run(fmt.Sprint(more), func(t *testing.T) { findRights(t, more) })
	}
}

func findRights(t *testing.T, more []string) {
	t.Parallel()
	r := newRigAs(t, append(more, "pq.jobs.remove", "pq.*.push", "q.*.enqueue", "q.mail.config", "pq.*.info")...)
	r.push("a")
	g := r.board.gateway
	ctx := context.Background()
	for q, want := range map[queueRef]can{
		{"pq", "jobs"}:  {Push: true, Remove: true},
		{"pq", "other"}: {Push: true},
		{"q", "mail"}:   {Push: true, Config: true},
	} {
		if got := g.may(ctx, q); got != want {
			t.Errorf("%v: %+v", q, got)
		}
		if again := g.may(ctx, q); again != want {
			t.Errorf("%v: then %+v", q, again)
		}
	}

	var stats micro.Stats
	must(t, json.Unmarshal(r.Request("$SRV.STATS.pqbridge", nil, nil).Data, &stats))
	refused := 0
	for _, e := range stats.Endpoints {
		refused += e.NumErrors
	}
	if asked := more == nil; (refused > 0) != asked {
		t.Errorf("bridges refused %d requests", refused)
	}
	if more != nil {
		return
	}

	all := newRigAs(t, "pq.>", "q.>")
	if got := all.board.gateway.may(ctx, queueRef{"pq", "jobs"}); got != (can{true, true, true, true, true, true, true}) {
		t.Errorf("who may do everything may do %+v", got)
	}
	for _, kind := range []string{"pq", "q"} {
		list, err := all.board.gateway.list(ctx, kind)
		if err != nil || len(list) > 0 {
			t.Errorf("there is %v now, %v", list, err)
		}
	}
	all.Bridge.BeginStop()
	<-all.Bridge.Done()
	if got := all.board.gateway.may(ctx, queueRef{"pq", "unasked"}); got != (can{}) {
		t.Errorf("without a bridge: %+v", got)
	}
}

// While NATS or the bridges are away, pages say so at once, and go on when they are back.
func TestAway(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Timeout = time.Hour }) // longer than a browser waits
	r.push("a")
	b := r.browser()
	await, _ := b.events("/events?page=queues")
	await("jobs")

	// Pages that do not change say from when they are, and hear of the connection.
	item := "/queue/pq/jobs/item/" + r.push("b")[0]
	for _, path := range []string{"/dead", "/queue/pq/jobs/items", item, "/none"} {
		if a := b.get(path); !strings.Contains(a.body, `data-events="/events?page=still"`) || !strings.Contains(a.body, ">as of ") || strings.Contains(a.body, ">live<") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	b.get("/").wants(t, 200, ">live<").lacks(t, ">as of ")
	still, _ := b.events("/events?page=still")
	still("connected")

	r.NATS.Stop()
	await("NATS is away")
	still("NATS is away")
	b.get("/").wants(t, 200, "NATS is away", "jobs")
	b.get("/queue/pq/jobs/items").wants(t, 200, "NATS is away")
	b.get("/queue/pq/jobs/item/x").wants(t, 503)
	b.get("/readyz").wants(t, 503, "NATS is away")
	b.get("/healthz").wants(t, 200)
	b.post("/queue/pq/jobs/purge", "name", "jobs").wants(t, 503, "NATS is away")
	b.post("/queue/pq/jobs/push", "value", "keep this").wants(t, 503, "NATS is away", "keep this")

	r.NATS.Start()
	await(`class="live"`)
	r.Bridge.BeginStop()
	<-r.Bridge.Done()
	await(client.ErrNoBridge.Error())
	b.get("/").wants(t, 200, client.ErrNoBridge.Error())
	r.StartBridge().WaitReady()
	await(`class="live"`)
	b.get("/queue/pq/jobs/items").wants(t, 200, `class="live"`)
}

// A dashboard may be started before NATS.
func TestStartsBeforeNATS(t *testing.T) {
	t.Parallel()
	env := testenv.New(t, testenv.Options{Stopped: true})
	nc, err := nats.Connect(env.NATS.URL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	must(t, err)
	t.Cleanup(nc.Close)
	b := serve(t, env, nc, nil).browser()
	b.sees("/", "NATS is away")
	b.get("/readyz").wants(t, 503)

	env.NATS.Start()
	bridge := env.StartBridge()
	bridge.WaitReady()
	await, _ := b.events("/events?page=bridges")
	await(`class="live"`)
	b.get("/readyz").wants(t, 200)
}

// What happens in the queues comes as events, to a page of one queue with points of its charts.
func TestEvents(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	all, _ := b.events("/events?page=queues")
	one, _ := b.events("/events?page=queue&kind=pq&name=jobs")
	bridges, _ := b.events("/events?page=bridges")
	status, stop := b.events("/events?page=dead")
	one(`"reset":true`)
	r.push("hello")
	all("jobs")
	one("hello")
	one("event: series")
	one(`"id":"counts"`)
	bridges("bridges")
	status("status")
	stop()
	b.get("/events?page=queue&kind=x&name=jobs").wants(t, 404)
	b.get("/events?page=queue&kind=pq&name=a%20b").wants(t, 404)

	r.stop() // which ends the others
}

// A page gets one change a second, however much happens.
func TestPace(t *testing.T) {
	synctest.Test(t, pace)
}

func pace(t *testing.T) {
	pages, err := newRenderer()
	must(t, err)
	l := &live{figures: figures{queues: map[queueRef]*queueState{}, bridges: bridges{}}, changed: make(chan struct{})}
	b := &board{pages: pages, guard: newGuard(&Options{}, 1), live: l, closing: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	w := &changesOf{ResponseRecorder: httptest.NewRecorder()}
	s := &stream{board: b, w: w, page: "queues", query: url.Values{}, sent: sent{}}
	s.r = httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page=queues", nil)
	var running sync.WaitGroup
	running.Go(s.run)
	for i := range 1000 {
		l.mu.Lock()
		l.queue(queueRef{"pq", fmt.Sprintf("queue-%d", i)}).Ready = 1
		close(l.changed)
		l.changed = make(chan struct{})
		l.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	running.Wait()
	if w.n < 9 || w.n > 12 {
		t.Errorf("%d changes in 10 s", w.n)
	}
}

// changesOf counts what a stream writes.
type changesOf struct {
	*httptest.ResponseRecorder
	n int
}

func (c *changesOf) Write(b []byte) (int, error)    { c.n++; return len(b), nil }
func (*changesOf) SetWriteDeadline(time.Time) error { return nil }

// Nobody is asked anything while nobody looks.
func TestInterest(t *testing.T) {
	now := time.Now()
	l := &live{}
	for age, want := range map[time.Duration]time.Duration{0: tick, 5 * time.Second: slowTick, time.Minute: slowTick, keepTime + 1: 0} {
		l.watched = now.Add(-age)
		if got := l.interest(now); got != want {
			t.Errorf("%v after the last look: %v", age, got)
		}
	}
}

// Thousands of queues are listed more rarely, sorted, filtered and cut into pages here, and only
// those in view are asked about.
func TestThousandsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes
		l := &live{figures: figures{queues: map[queueRef]*queueState{}, bridges: bridges{}}}
		now := time.Now()
		for i := range 10_000 {
			q := &queueState{infoAt: now, listed: true}
			q.Ready = int64(i * 7 % 10_000)
			l.queues[queueRef{"pq", fmt.Sprintf("queue-%04d", i)}] = q
		}
		l.listed = now
		if l.isListDue(now.Add(15*time.Second)) || !l.isListDue(now.Add(20*time.Second)) {
			t.Error("10,000 queues are not listed every 20 s")
		}

		d := &board{live: l}
		v := d.queuesView(map[string][]string{"sort": {"ready"}, "dir": {"desc"}, "from": {"100"}})
		if len(v.Rows) != pageRows || v.Rows[0].Ready != 9_899 || v.Total != 10_000 || v.Pager.From != 101 || v.Pager.Prev == "" || v.Pager.Next == "" {
			t.Errorf("%d rows from %+v, %+v", len(v.Rows), v.Rows[0], v.Pager)
		}
		v = d.queuesView(map[string][]string{"filter": {"QUEUE-99"}, "from": {"5000"}})
		if v.Matching != 100 || v.Rows[0].Name != "queue-9900" || v.Pager.Next != "" || v.Sum.Ready != 9_999*5_000 {
			t.Errorf("%d match, %+v, %+v", v.Matching, v.Pager, v.Sum)
		}

		view := []queueRef{{"pq", "queue-0001"}, {"pq", "queue-0002"}}
		soon, later := now.Add(6*time.Second), now.Add(time.Minute)
		for _, q := range view {
			l.queues[q].shown = soon
		}
		if list := l.due(soon); len(list) != 2 || !slices.Contains(view, list[0]) || !slices.Contains(view, list[1]) {
			t.Errorf("%d are due", len(list))
		}
		for _, q := range view {
			l.queues[q].shown = later
		}
		if list := l.due(later); len(list) != 2+othersPerTick {
			t.Errorf("%d are due", len(list))
		}
	})
}

// Rates are what bridges counted between two answers. A bridge that no longer answers has none.
func TestRates(t *testing.T) {
	l := &live{figures: figures{bridges: bridges{}}}
	jobs, mail := queueRef{"pq", "jobs"}, queueRef{"q", "mail"}
	now := time.Now()
	for i, id := range []string{"a", "a", "b", "b"} {
		if l.bridges[id] == nil {
			l.bridges[id] = &bridgeState{}
		}
		said := subjects.BridgeStats{Ready: true, Queues: []subjects.QueueTraffic{{Kind: "pq", Queue: "jobs", In: int64(1000 * i), Out: int64(10 * i)}}}
		if i == 1 {
			said.Queues = append(said.Queues, subjects.QueueTraffic{Kind: "q", Queue: "mail", In: 1_000_000}) // since long ago
		}
		l.bridges[id].update(now.Add(time.Duration(2*i)*time.Second), micro.Stats{ServiceIdentity: micro.ServiceIdentity{ID: id}}, said)
	}
	if in, out := l.bridges.ratesOf(jobs); *in != 1000 || *out != 10 { // 500 and 5 of each
		t.Errorf("%v in, %v out", *in, *out)
	}
	if in, _ := l.bridges.ratesOf(mail); *in != 0 {
		t.Errorf("%v in", *in)
	}

	l.bridges["b"].missed = maxMissed + 1
	if in, _ := l.bridges.ratesOf(jobs); *in != 500 {
		t.Errorf("%v in without the bridge that is gone", *in)
	}
	l.g = &gateway{}
	if rows := l.bridgesView().Rows; len(rows) != 2 || !rows[0].Ready || rows[1].Ready || rows[1].In != nil || *rows[0].In != 500 {
		t.Errorf("%+v", rows)
	}
	l.bridges["a"].missed = maxMissed + 1
	if in, out := l.bridges.ratesOf(jobs); in != nil || out != nil {
		t.Error("rates of no bridge")
	}
}

// A history keeps ten minutes, and its line is at even intervals.
func TestHistory(t *testing.T) {
	var h history
	start := time.Now()
	for i := range 3000 {
		h.add(point{at: start.Add(time.Duration(i) * 500 * time.Millisecond), ready: int64(i), in: -1}, fineStep)
	}
	n := len(h.points)
	if n < 290 || n > 310 {
		t.Errorf("%d points", n)
	}
	last := h.points[n-1].at
	if line := h.line(last, readyOf); len(line) != lineSteps || line[59] != h.points[n-1].ready || line[0] >= line[1] {
		t.Errorf("%v", line)
	}
	c, rates := charts(h.points, true)
	if !c.Reset || len(c.At) != len(c.Lines[2]) || rates.Lines[0][0] != nil || *c.Lines[1][0] != 0 {
		t.Errorf("%+v, %+v", c, rates)
	}
}
