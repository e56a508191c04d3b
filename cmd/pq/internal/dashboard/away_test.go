package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A user who may only look sees pages without actions, and cannot act with made-up forms either.
// Finding that out changes nothing.
func TestReadOnlyRole(t *testing.T) {
	t.Parallel()

	r := newRigAs(t, "*.*.info", "*.list", "*.*.items", "*.*.get", "$SRV.>", "$SYS.REQ.USER.INFO")
	id := r.push("look at me")[0]
	before := r.info()
	b := r.browser()

	for _, path := range []string{
		"/", "/queue/pq/jobs", "/queue/pq/jobs/items", "/queue/pq/jobs/item/" + id, "/dead",
		"/bridges", "/schedules", "/schedule",
	} {
		b.get(path).wants(t, 200).lacks(t, "Add a schedule", ">Add<", "/push", "/config", "/pause",
			"/purge", "/remove", "/move", "/redrive", "/release")
	}
	b.get("/queue/pq/jobs/items").wants(t, 200, "look at me")

	for action, verb := range map[string]string{
		"push":    "push",
		"config":  "config",
		"pause":   "config",
		"resume":  "config",
		"purge":   "purge",
		"remove":  "remove",
		"move":    "move",
		"redrive": "redrive",
		"release": "release",
	} {
		b.post("/queue/pq/jobs/"+action, "ids", id, "priority", "5", "name", "jobs", "value", "x",
			"max_deliver", "7", "before.max_deliver", "").
			wants(t, http.StatusForbidden, "may not send requests to pq.jobs."+verb)
	}

	after := r.info()
	if fmt.Sprintf("%+v", after.Settings) != fmt.Sprintf("%+v", before.Settings) ||
		after.Ready != 1 {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// Who may do nothing, or only list, or cannot receive replies, gets pages that say so.
func TestBlindRole(t *testing.T) {
	t.Parallel()

	env := testenv.New(t, testenv.Options{NATS: testenv.ServerOptions(t, `authorization { users = [
		{user: all, password: all}
		{user: lister, password: lister, permissions: {
			publish: ["pq.list", "q.list", "$SYS.REQ.USER.INFO"], subscribe: "_INBOX.>"}}
		{user: nobody, password: nobody, permissions: {publish: "nothing", subscribe: "_INBOX.>"}}
		{user: deaf, password: deaf, permissions: {publish: ">", subscribe: "nothing"}}
	] }
	no_auth_user: all`)})

	for user, sees := range map[string]string{
		"lister": "jobs",
		"nobody": "may not",
		"deaf":   "may not receive replies",
	} {
		r := serve(t, env, env.Connect(nats.UserInfo(user, user)), func(o *Options) {
			if user == "deaf" {
				o.Timeout = time.Second // no reply would come later
			}
		})

		id := r.push("secret-value")[0]
		b := r.browser()
		b.sees("/", sees)

		for _, path := range []string{"", "/items", "/item/" + id} {
			page := b.get("/queue/pq/jobs" + path)
			if page.lacks(t, "secret-value"); user == "lister" {
				page.lacks(t, "/push", "/config", "/pause", "/purge", "formaction")
			}
		}

		b.sees("/dead", "Dead letters")
		b.get("/bridges").wants(t, 200)
	}
}

// The server says what the user may do. Where it does not, everything is offered, and refused then.
func TestRightsAreFoundOut(t *testing.T) {
	t.Parallel()

	some := []string{"pq.jobs.remove", "pq.*.push", "q.*.push", "q.mail.config", "pq.*.info"}
	r := newRigAs(t, append(some, "$SYS.REQ.USER.INFO")...)
	g := r.board.gateway

	for q, want := range map[queueRef]can{
		{"pq", "jobs"}:  {Push: true, Remove: true},
		{"pq", "other"}: {Push: true},
		{"q", "mail"}:   {Push: true, Config: true},
	} {
		if got := g.may(t.Context(), q); got != want {
			t.Errorf("%v: %+v", q, got)
		}
	}

	r = newRigAs(t, some...)
	got := r.board.gateway.may(t.Context(), queueRef{"pq", "jobs"})
	if got != (can{true, true, true, true, true, true, true, true, true}) {
		t.Errorf("%+v is offered", got)
	}
	r.browser().post("/queue/pq/jobs/purge", "name", "jobs").wants(t, http.StatusForbidden,
		"may not send requests to pq.jobs.purge")
}

// While NATS or the bridges are away, pages say so, and from when they are, and go on when they are
// back.
func TestAway(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Timeout = time.Hour }) // longer than a browser waits
	id := r.push("a")[0]
	b := r.browser()

	for _, path := range []string{
		"/", "/queue/pq/jobs", "/dead", "/bridges", "/queue/pq/jobs/items",
		"/queue/pq/jobs/item/" + id,
	} {
		b.sees(path, `class="connected"`, `data-refresh="2000">as of <time`).lacks(t, ">live<")
	}

	// Which no address has.
	b.post("/queue/pq/jobs/remove", "ids", id, "dry",
		"1").wants(t, 200, ">as of <time").lacks(t, "data-refresh")

	r.NATS.Stop()
	b.sees("/", `class="away"`, "NATS is unreachable", "jobs")
	before := asOf(b.get("/"))
	// So that an open page keeps what it has.
	b.get("/queue/pq/jobs/items").wants(t, 503, "NATS is unreachable").lacks(t, "not sent")

	b.get("/queue/pq/jobs/item/x").wants(t, 503)
	b.get("/readyz").wants(t, 503, "NATS is unreachable")
	b.get("/healthz").wants(t, 200)

	r.board.details.mu.Lock()
	last := r.board.details.all[queueRef{"pq", "jobs"}]
	r.board.details.mu.Unlock()
	last.mu.Lock()
	last.until = time.Time{} // too old, and there is nothing newer
	last.mu.Unlock()

	b.get("/queue/pq/jobs").wants(t, 200, "<bdi>a</bdi>")
	b.post("/queue/pq/jobs/purge", "name", "jobs").wants(t, 503, "NATS is unreachable")
	b.post("/queue/pq/jobs/push", "value", "keep this").wants(t, 503,
		"NATS is unreachable: nothing was changed", "keep this")

	if after := asOf(b.get("/")); after != before {
		t.Errorf("figures of %s are shown as of %s", before, after)
	}

	r.NATS.Start()
	b.sees("/", `class="connected"`)
	r.Bridge.BeginStop()
	<-r.Bridge.Done()
	b.sees("/", "no bridge answers")

	b.post("/queue/pq/jobs/push", "value", "keep this").wants(t, 503,
		"no bridge answers: nothing was changed", "keep this")
	b.post("/queue/pq/jobs/pause").wants(t, 503, "no bridge answers: nothing was changed",
		`id="schedules" data-steady>
<h2>Schedules</h2>
<p class="hint">Not known.`)

	a := b.get("/queue/pq/jobs/items").wants(t, 503, "Not known.")
	n := strings.Count(a.body, "no bridge answers")
	if n != 1 || strings.Contains(a.body, "is listening") {
		t.Errorf("said %d times: %s", n, a.body)
	}

	r.StartBridge().WaitReady()
	b.sees("/", `class="connected"`)
	b.get("/queue/pq/jobs/items").wants(t, 200, `class="connected"`)
}

// asOf returns from when a page is.
func asOf(page answer) string {
	_, after, _ := strings.Cut(page.body, `>as of <time datetime="`)
	at, _, _ := strings.Cut(after, `"`)
	return at
}

// A dashboard may be started before NATS.
func TestStartsBeforeNATS(t *testing.T) {
	t.Parallel()

	env := testenv.New(t, testenv.Options{Stopped: true})
	nc, err := nats.Connect(env.NATS.URL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	must(t, err)

	t.Cleanup(nc.Close)
	b := serve(t, env, nc, nil).browser()
	b.sees("/", "NATS is unreachable")

	b.get("/readyz").wants(t, 503)

	// Nothing is known, and nothing is shown as if it were.
	for _, path := range []string{"", "/items", "/item/x"} {
		b.get("/queue/pq/jobs"+path).wants(t, 503, "NATS is unreachable",
			"not known yet").lacks(t, `id="totals"`, `id="set-`)
	}

	b.nothingIsKnown("NATS is unreachable")

	env.NATS.Start()
	b.sees("/", "no bridge answers")
	b.nothingIsKnown("no bridge answers")

	bridge := env.StartBridge()
	bridge.WaitReady()
	b.sees("/bridges", `class="connected"`)
	b.sees("/", "No queue has items or settings yet", "<dt>Ready</dt><dd>0</dd>")

	b.get("/readyz").wants(t, 200)
}

// nothingIsKnown checks that no page shows an unknown figure as zero.
func (b *browser) nothingIsKnown(why string) {
	b.t.Helper()
	for _, path := range []string{
		"/", "/dead", "/busy", "/schedules", "/bridges", "/queue/pq/jobs", "/queue/pq/jobs/items",
	} {
		page := b.get(path)
		for strings.Contains(page.body, `role="status"`) { // a scan, which soon ends
			page = b.get(path)
		}
		if !strings.Contains(page.body, why) ||
			!strings.Contains(page.body, "Not known") && why != "no bridge answers" {
			b.t.Errorf("%s: %s", path, page.mainText())
		}

		page.lacks(b.t, ">0<", ">0 ", "No queue", "There are none", "Nothing is leased",
			"neither items nor settings")
	}
}

// Who may not list the queues does not see that there are none.
func TestUnlistedIsNotZero(t *testing.T) {
	b := newRigAs(t, "*.*.info", "*.*.items", "$SYS.REQ.USER.INFO").browser()
	b.sees("/", "may not send requests to")

	for _, path := range []string{"/", "/dead", "/busy", "/schedules"} {
		b.sees(path, `<p class="err" role="alert">`).
			lacks(t, ">0<", "No queue", "There are none", "Nothing is leased")
	}
}

// Rates that are not known have no place in a line, and are no zero.
func TestUnknownRates(t *testing.T) {
	now := time.Now()
	var h history

	for i, rate := range []float64{-1, -1, 3} {
		p := newPoint(now.Add(time.Duration(i-2)*time.Minute), subjects.QueueCounts{}, traffic{})
		p.figures[pushedLine] = rate
		h.add(p)
	}

	line := h.line(now, pushedLine)

	if first, last := line[0], line[len(line)-1]; first >= 0 || last != 3 {
		t.Errorf("a line of rates that became known is %v", line)
	}
	if points := spark(line, 96, 16); points != "96.0,0.0" {
		t.Errorf("it is drawn as %q", points)
	}

	// A bridge that names only the busiest of its queues says nothing about the others.
	none := subjects.QueueTraffic{}
	crowded := &bridgeState{
		counters: map[queueRef]subjects.QueueTraffic{allQueues: none},
		before:   map[queueRef]subjects.QueueTraffic{allQueues: none},
		elapsed:  1,
	}

	for i := range subjects.MaxStatsQueues {
		q := queueRef{"pq", fmt.Sprint("busy-", i)}
		crowded.before[q], crowded.counters[q] = none, counted(q.Kind, q.Name, 1, 1)
	}

	all := bridges{"a": crowded}
	other := queueRef{"pq", "other"}

	counted := all.past(other).Counted
	if got := all.traffic(other); got != (traffic{}) || counted != nil {
		t.Errorf("%+v and %+v of a queue that no bridge names", got, counted)
	}

	got := all.traffic(queueRef{"pq", "busy-7"})
	if got.In == nil || *got.In != 1 || *got.Waiting != 0 {
		t.Errorf("%+v of a queue that it names", got)
	}

	// So it is with a bridge whose reply has no room for more.
	delete(crowded.counters, queueRef{"pq", "busy-8"})
	crowded.More = true
	if got := all.traffic(other); got != (traffic{}) {
		t.Errorf("%+v of a queue for which the reply had no room", got)
	}
}

// Nobody is asked anything while nobody looks.
func TestInterest(t *testing.T) {
	now := time.Now()
	l := &monitor{}

	for age, want := range map[time.Duration]bool{0: true, keepTime - 1: true, keepTime: false} {
		l.watched = now.Add(-age)
		if got := l.isWatched(now); got != want {
			t.Errorf("%v after the last look: %v", age, got)
		}
	}
}

// Thousands of queues are listed more rarely, sorted, filtered and cut into pages here, and only
// those in view are asked about.
func TestThousandsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes
		l := &monitor{queues: map[queueRef]*queueState{}, bridges: bridges{}}
		now := time.Now()

		for i := range 10_000 {
			q := &queueState{asked: now, listed: true}
			q.Ready = int64(i * 7 % 10_000)
			l.queues[queueRef{"pq", fmt.Sprintf("queue-%04d", i)}] = q
		}

		l.listed = now
		if l.isListDue(now.Add(15*time.Second)) || !l.isListDue(now.Add(20*time.Second)) {
			t.Error("10,000 queues are not listed every 20 s")
		}

		d := &Dashboard{monitor: l}
		v := d.queuesView(map[string][]string{"sort": {"ready"}, "dir": {"desc"}, "from": {"100"}})
		if len(v.Rows) != pageRows || v.Rows[0].Ready != 9_899 || v.Total != 10_000 ||
			v.Pager.From != 101 || v.Pager.Prev == "" || v.Pager.Next == "" {
			t.Errorf("%d rows from %+v, %+v", len(v.Rows), v.Rows[0], v.Pager)
		}

		v = d.queuesView(map[string][]string{"filter": {"QUEUE-99"}, "from": {"5000"}})
		if v.Matching != 100 || v.Rows[0].Name != "queue-9900" || v.Pager.Next != "" ||
			v.Sum.Ready != 9_999*5_000 {
			t.Errorf("%d match, %+v, %+v", v.Matching, v.Pager, v.Sum)
		}

		view := []queueRef{{"pq", "queue-0001"}, {"pq", "queue-0002"}}
		soon, later := now.Add(6*time.Second), now.Add(time.Minute)

		for _, q := range view {
			l.queues[q].shown = soon
		}
		if list := l.due(soon); len(list) != 2 || !slices.Contains(view, list[0]) ||
			!slices.Contains(view, list[1]) {
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

// A dead-letter queue folds into its queue, which stands for it in the list and in the total.
func TestDeadQueuesFold(t *testing.T) {
	t.Parallel()

	l := &monitor{queues: map[queueRef]*queueState{}, bridges: bridges{}}
	found := map[queueRef]subjects.QueueCounts{}

	for name, n := range map[string]int64{
		"jobs":       5,
		"jobs-dead":  100,
		"gone-dead":  30,
		"mail":       2,
		"bin":        7,
		"empty-dead": 0,
	} {
		found[queueRef{"pq", name}] = subjects.QueueCounts{Queue: name, Ready: n}
	}

	l.queue(queueRef{"pq", "mail"}).deadLetter = "bin"
	l.listed = time.Now()
	l.record(l.listed, found)
	d := &Dashboard{monitor: l}

	for filter, want := range map[string]string{
		"":     "gone 0 jobs 5 mail 2",
		"dead": "empty-dead 0 gone-dead 30 jobs-dead 100",
		"i":    "mail 2 bin 7",
	} {
		v := d.queuesView(map[string][]string{"filter": {filter}})
		var rows []string

		for _, row := range v.Rows {
			rows = append(rows, fmt.Sprint(row.Name, " ", row.Ready))
		}

		got := strings.Join(rows, " ")
		if got != want || v.Sum.Ready != 7 || *v.Sum.Dead != 137 || v.Total != 3 {
			t.Errorf("%q: %s, in all %+v of %d, want %s", filter, got, v.Sum, v.Total, want)
		}
	}

	v := d.queuesView(map[string][]string{"sort": {"dead"}, "dir": {"desc"}})
	top := v.Rows[0]
	if top.Name != "jobs" || *top.Dead != 100 ||
		top.DeadQueue.Name != "jobs-dead" || v.Sum.Line[0] != 7 {
		t.Errorf("%+v, %v", top, v.Sum.Line)
	}
}

// A scan is shared, shows a part of the first one only, keeps the last whole one after a failure,
// and goes on.
func TestBackgroundScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan error)
		took := time.Second
		s := backgroundScan[string]{searches: newSearchRegistry(nil)}

		s.gather = func(_ context.Context, show func(string)) (string, error) {
			show("part")
			time.Sleep(took)
			return time.Now().Format("whole 05"), <-answers
		}

		wants := func(result string, running bool, failed error) {
			t.Helper()
			got, state := s.look(t.Context())
			if got != result || state.Running != running || state.Err != failed {
				t.Errorf("%q, %+v: want %q", got, state, result)
			}
		}
		wants("part", true, nil)
		wants("part", true, nil)

		answers <- nil
		synctest.Wait()
		wants("whole 01", false, nil)

		time.Sleep(scanFresh)
		wants("whole 01", false, nil) // while the next one runs

		answers <- errAway
		synctest.Wait()
		wants("whole 01", false, errAway)

		took = time.Minute
		s.expire()
		wants("whole 01", false, errAway)

		answers <- nil
		synctest.Wait()
		time.Sleep(3 * time.Minute) // less than four times as long as it took
		s.look(t.Context())

		select {
		case answers <- nil:
			t.Error("a scan that takes long is made again at once")
		default:
		}

		s.searches.end()
	})
}

// counted is what a bridge says about the items of a queue.
func counted(kind, queue string, in, out int64) subjects.QueueTraffic {
	q := subjects.QueueTraffic{Kind: kind, Queue: queue}
	q.In, q.Out = in, out
	return q
}

// Rates are what bridges counted between two answers. A bridge that no longer answers has none.
func TestRates(t *testing.T) {
	l := &monitor{bridges: bridges{}}
	jobs, mail := queueRef{"pq", "jobs"}, queueRef{"q", "mail"}
	now := time.Now()

	for i, id := range []string{"a", "a", "b", "b"} {
		if l.bridges[id] == nil {
			l.bridges[id] = &bridgeState{}
		}

		said := subjects.BridgeStats{
			Ready:   true,
			Waiters: 7,
			Queues:  []subjects.QueueTraffic{counted("pq", "jobs", int64(1000*i), int64(10*i))},
		}

		said.Queues[0].Failed = int64(2 * i)
		said.Total.In = int64(3000 * i)
		said.Total.Hour.In, said.Total.Day.Failed = int64(10*i), int64(i)

		if i == 1 {
			said.Queues = append(said.Queues, counted("q", "mail", 1_000_000, 0)) // since long ago
		}

		answer := &discovery.Bridge{BridgeStats: &said}
		answer.ID, answer.Started = id, now.Add(time.Duration(i)*time.Second)
		l.bridges[id].update(now.Add(time.Duration(2*i)*time.Second), answer)
	}
	// 500, 5 and 1 of each.
	if got := l.bridges.traffic(jobs); *got.In != 1000 || *got.Out != 10 || *got.Failed != 2 {
		t.Errorf("%v in, %v out, %v failed", *got.In, *got.Out, *got.Failed)
	}

	if got := l.bridges.traffic(allQueues); *got.In != 3000 || *got.Waiting != 14 {
		t.Errorf("%v in of all queues, %v waiting", *got.In, *got.Waiting)
	}
	if got := l.bridges.traffic(mail); *got.In != 0 {
		t.Errorf("%v in", *got.In)
	}

	past := l.bridges.past(allQueues)
	sum, since := past.Counted, past.Since
	if sum.Hour.In != 40 || sum.Day.Failed != 4 || !since.Equal(now.Add(3*time.Second)) {
		t.Errorf("counted %+v since %v", sum, since)
	}

	// A bridge may have counts from before it started.
	for _, b := range l.bridges {
		b.Since = now.Add(-time.Hour)
	}
	if past := l.bridges.past(allQueues); !past.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("counted since %v, want an hour earlier", past.Since)
	}

	l.bridges["b"].missed = maxMissed + 1
	if got := l.bridges.traffic(jobs); *got.In != 500 {
		t.Errorf("%v in without the bridge that is gone", *got.In)
	}

	if sum := l.bridges.past(allQueues).Counted; sum.Hour.In != 10 {
		t.Errorf("counted %+v without the bridge that is gone", sum)
	}

	l.g = &gateway{}
	v, _ := l.bridgesView()

	rows := v.Rows
	if len(rows) != 2 || !rows[0].Ready || rows[1].Ready ||
		rows[1].PerSecond != nil || rows[0].PerSecond == nil {
		t.Errorf("%+v", rows)
	}

	l.bridges["a"].missed = maxMissed + 1
	sum = l.bridges.past(jobs).Counted
	if got := l.bridges.traffic(jobs); got != (traffic{}) || sum != nil {
		t.Errorf("%+v and %+v of no bridge", got, sum)
	}
}

// Whatever answers in place of a bridge harms nothing, and bridges with other prefixes are not
// shown.
func TestForeignAnswers(t *testing.T) {
	grammar, err := subjects.New("pq", "q")
	must(t, err)
	l := &monitor{bridges: bridges{}, g: &gateway{grammar: grammar}}

	for _, said := range []string{
		`{"id":"null","endpoints":[null]}`, `{"id":"none"}`,
		`{"id":"other","endpoints":[{"subject":"b.*.push"}]}`,
		`{"id":"ours","endpoints":[null,{"subject":"pq.*.push","num_requests":3}],"bridge":{}}`,
	} {
		l.noteAnswer(&nats.Msg{Data: []byte(said)})
	}

	rows := l.bridges.rows()
	if len(rows) != 1 || rows[0].ID != "ours" || rows[0].Requests != 3 {
		t.Errorf("shown are %+v, want ours", rows)
	}
}

// What became of items in the last hour and day is there without a page that was open meanwhile,
// and so are the pops that wait.
func TestThroughput(t *testing.T) {
	r := newRig(t, nil)
	r.push("one", "two", "three")
	failed, err := r.jobs.Lease(t.Context())
	must(t, err)
	must(t, failed.Nak(t.Context(), time.Hour))

	_, err = r.jobs.Pop(t.Context())
	must(t, err)

	waits, stop := context.WithCancel(t.Context())
	done := make(chan struct{})

	go func() {
		defer close(done)
		idle := client.New(r.Conn, client.WithTimeout(testenv.Patience)).PriorityQueue("idle")
		_, _ = idle.Pop(waits, client.Expires(time.Hour)) // until the test ends
	}()

	defer func() { stop(); <-done }()

	b := r.browser()
	b.sees("/queue/pq/jobs",
		`<th scope="row">Last hour</th><td class="">3</td><td class="">2</td>`+
			`<td class="">1</td><td class="">1</td><td class="z">0</td>`,
		"Last hour and day: counted since ")
	b.sees("/", "3 in 1h", "1 in 24h", "Last hour and day: counted since ",
		"<dt>Waiting pops</dt><dd>1</dd>")
	b.sees("/queue/pq/idle", "<dt>Waiting pops</dt><dd>1</dd>")
	b.sees("/busy", "Waiting for items: 1 pop.")
}

// A history keeps ten minutes, and its line is at even intervals.
func TestHistory(t *testing.T) {
	var h history
	start := time.Now()

	for i := range 3000 {
		at := start.Add(time.Duration(i) * 500 * time.Millisecond)
		h.add(newPoint(at, subjects.QueueCounts{Ready: int64(i)}, traffic{}))
	}

	n := len(h.points)
	if n < 290 || n > 310 {
		t.Errorf("%d points", n)
	}

	last := h.points[n-1].at
	if line := h.line(last, readyLine); len(line) != lineSteps || line[0] >= line[1] ||
		line[59] != h.points[n-1].figures[readyLine] {
		t.Errorf("%v", line)
	}

	c, rates := charts(h.points)
	if len(c.At) != len(c.Lines[2]) || rates.Lines[0][0] != nil || *c.Lines[1][0] != 0 {
		t.Errorf("%+v, %+v", c, rates)
	}

	h.add(point{at: last.Add(2 * outage)})
	c, _ = charts(h.points)
	if line := c.Lines[0]; line[len(line)-1] != nil || line[len(line)-2] == nil {
		t.Error("a line goes across an outage")
	}
}
