package bridge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/testenv"
)

// encoded returns a report as bridges send it.
func encoded(t *testing.T, r peers.Report) string {
	t.Helper()
	data, err := json.Marshal(r)
	must(t, err)
	return string(data)
}

// senderID returns the id of the bridge that sent a heartbeat.
func senderID(m *nats.Msg) string {
	words := strings.Fields(string(m.Data))[1:]
	for words[0] == "waits" || words[0] == "rings" {
		words = words[1:]
	}

	return words[0]
}

// waitForHeartbeats waits until each bridge has sent that many more heartbeats.
func waitForHeartbeats(t *testing.T, nc *nats.Conn, bridges, times int) {
	t.Helper()
	said := subscribe(t, nc, "_pqbridge.>")
	defer func() { _ = said.Unsubscribe() }()
	counts, enough := map[string]int{}, 0

	for enough < bridges {
		m := next(t, said)
		if !strings.Contains(m.Subject, ".members") || strings.HasPrefix(string(m.Data), "{") {
			continue
		}

		id := senderID(m)
		if counts[id]++; counts[id] == times {
			enough++
		}
	}
}

// askMany sends n requests, with a header and their number for %d in the subject, and returns the
// subscription to the answers.
func askMany(t *testing.T, e *testenv.Env, n int, subject, payload string) *nats.Subscription {
	t.Helper()
	inbox := nats.NewInbox()
	answers := subscribe(t, e.Conn, inbox+".*")
	must(t, answers.SetPendingLimits(-1, -1))

	for i := range n {
		number := strconv.Itoa(i)
		must(t, e.Conn.PublishMsg(&nats.Msg{
			Subject: strings.Replace(subject, "%d", number, 1),
			Reply:   inbox + "." + number,
			Header:  nats.Header{"Other": {"x"}},
			Data:    []byte(payload),
		}))
	}
	must(t, e.Conn.FlushTimeout(testenv.Patience))
	return answers
}

// popEachOf requests one pop from each of n queues.
func popEachOf(t *testing.T, e *testenv.Env, n int) *nats.Subscription {
	t.Helper()
	return askMany(t, e, n, "pq.jobs-%d.pop.min", "")
}

// unknownOutcome is what countAnswers counts a 503 as that leaves open whether the request ran.
const unknownOutcome = 1000 + 503

// countAnswers waits for n answers, one for each request, and counts them by code, 0 for success.
// If the outcome is unknown, it adds 1000 to the code.
func countAnswers(t *testing.T, answers *nats.Subscription, n int) map[int]int {
	t.Helper()
	codes, answered := map[int]int{}, map[string]bool{}
	for i := range n {
		m, err := answers.NextMsg(testenv.Patience)
		if err != nil {
			t.Fatalf("%d of %d requests were answered: %v: %v", i, n, codes, err)
		}
		if answered[m.Subject] {
			t.Errorf("two answers to one request: %v", m.Header)
		}

		answered[m.Subject] = true
		var refused *refusal

		switch {
		case !errors.As(replyError(m.Header), &refused):
			codes[0]++
		case refused.Unknown:
			codes[1000+int(refused.Code)]++
		default:
			codes[int(refused.Code)]++
		}
	}

	return codes
}

// Each forwarded pop is answered if its bridge dies, even right after a heartbeat. Afterwards the
// others run all pops.
func TestPopsOfABridgeThatDies(t *testing.T) {
	// The pops are of n queues. At least enough of them belong to the third bridge.
	const n, enough = 120, 12
	e := start(t, testenv.Options{NATS: withForwardedOnly})
	second := newBridge(e)
	slow := stuck{Database: e.DB, entered: make(chan struct{}, n), free: make(chan struct{})}
	w := newWire(t, e)
	third := e.StartBridge(w.use, forwardedOnly, func(o *bridge.Options) { o.DB = slow })
	waitForPeers(t, e.Bridge, second, third)

	answers := popEachOf(t, e, n)
	testenv.Eventually(t, func() error {
		if have, err := metric(third, "pq_pending_requests"); err != nil || have < enough {
			return fmt.Errorf("the slow bridge has %v pops, %v", have, err)
		}
		return nil
	})

	waitForHeartbeats(t, e.Conn, 3, 2) // all three are in step
	w.kill()

	codes := countAnswers(t, answers, n)
	if codes[unknownOutcome] < enough || codes[404]+codes[unknownOutcome] != n {
		t.Errorf("answers by code: %v", codes)
	}

	waitForPeers(t, e.Bridge, second)
	if codes := countAnswers(t, popEachOf(t, e, n), n); codes[404] != n {
		t.Errorf("answers by code when it is gone: %v", codes)
	}

	close(slow.free)
	_ = third.Stop() // it is dead, and reports the requests that it could not answer
}

// If a bridge freezes for longer than peerLife, the others answer the pops that it had, and nobody
// gets a second answer. Once it is back, it has its queues again, and every pop is run.
func TestPopsOfABridgeThatFreezes(t *testing.T) {
	const n = 120
	e := start(t, testenv.Options{NATS: withForwardedOnly})
	second := newBridge(e)
	w := newWire(t, e)
	third := e.StartBridge(w.use, forwardedOnly)

	waitForPeers(t, e.Bridge, second, third)
	w.freeze()
	answers := popEachOf(t, e, n)

	codes := countAnswers(t, answers, n)
	if codes[unknownOutcome] == 0 || codes[404]+codes[unknownOutcome] != n {
		t.Errorf("answers by code while it is frozen: %v", codes)
	}

	waitForPeers(t, e.Bridge, second)
	w.passReads(-1, toServer, toBridge)
	waitForPeers(t, e.Bridge, second, third)

	// It has run the pops since, and knows that they were answered.
	wantMetric(t, third, `pq_requests_total{operation="pop-min"}`, float64(codes[unknownOutcome]))
	if late, _, err := answers.Pending(); late > 0 || err != nil {
		t.Errorf("%d late answers, %v", late, err)
	}

	if codes := countAnswers(t, popEachOf(t, e, n), n); codes[404] != n {
		t.Errorf("answers by code when it is back: %v", codes)
	}
}

// A bridge that shuts down takes the pops of peers that have not yet heard of it. On a machine that
// stands still meanwhile, the bridges may take each other for gone: then it is tried again.
func TestPopsForwardedToABridgeThatEnds(t *testing.T) {
	t.Parallel()

	const n = 100

	var codes map[int]int
	for range 10 {
		var forwarded bool
		forwarded, codes = popsForwardedToABridgeThatEnds(t, n)
		if forwarded && codes[404] == n {
			return
		}

		if codes[404]+codes[unknownOutcome] != n {
			break
		}
	}
	t.Errorf("answers by code: %v, want %d of 404, after some were forwarded", codes, n)
}

func popsForwardedToABridgeThatEnds(t *testing.T, n int) (isForwarded bool, codes map[int]int) {
	e := testenv.New(t, testenv.Options{NATS: withForwardedOnly, Stopped: true})
	e.NATS.Start()
	e.Conn = e.Connect()
	w := newWire(t, e)
	first := newBridge(e, w.use, func(o *bridge.Options) { // whose connection outlives the freeze
		o.NATSOptions = append(o.NATSOptions, nats.PingInterval(testenv.Patience))
	})
	second := e.StartBridge(forwardedOnly)
	waitForPeers(t, first, second)
	w.passReads(0, toBridge)
	answers := popEachOf(t, e, n) // on their way to the first bridge

	// The second shuts down, and the first has not heard of it when it forwards the first pops.
	second.BeginStop()
	notReady(t, second, "shutting down")
	waitForHeartbeats(t, e.Conn, 1, 3)

	// Heartbeats come before the pops, more on a slow machine.
	testenv.Eventually(t, func() error {
		w.passReads(1, toBridge)
		forwarded, err := metric(first, "pq_passed_total")
		isForwarded = forwarded > 0
		answered, _, pendingErr := answers.Pending()
		if isForwarded || answered > 0 {
			return nil
		}
		return fmt.Errorf("no pop was forwarded or answered: %v, %v", err, pendingErr)
	})

	w.passReads(-1, toBridge) // the rest of them, and that the other one shuts down
	codes = countAnswers(t, answers, n)
	<-second.Done()

	return isForwarded, codes
}

// forwarded is a pop that the ghost received.
type forwarded struct {
	number  uint64
	subject string
	reply   string
	headers nats.Header
}

// receive waits until a bridge has forwarded n pops to the ghost, and returns the
// bridge's id and the pops.
func (g *ghost) receive(inbox *nats.Subscription, n int) (from string, all []forwarded) {
	g.t.Helper()
	for range n {
		m := next(g.t, inbox)
		rest := strings.SplitN(strings.TrimPrefix(m.Subject, g.root+"to.ghost."), ".", 3)

		number, err := strconv.ParseUint(rest[1], 10, 64)
		if err != nil || len(rest) != 3 {
			g.t.Fatalf("%s: %v", m.Subject, err)
		}

		from = rest[0]
		all = append(all, forwarded{number, rest[2], m.Reply, m.Header})
	}

	return from, all
}

// popUntilForwarded pops until at least n pops have been forwarded to the ghost. It returns those
// and the subscription to their answers.
func (g *ghost) popUntilForwarded(
	e *testenv.Env, inbox *nats.Subscription, n int,
) (from string, all []forwarded, answers *nats.Subscription) {
	g.t.Helper()
	answers = popEachOf(g.t, e, 100)
	from, all = g.receive(inbox, n)

	rest := 0
	testenv.Eventually(g.t, func() (err error) { // the pops that the bridge answers itself
		if rest, _, err = inbox.Pending(); err == nil {
			if own, _, _ := answers.Pending(); own+n+rest != 100 {
				err = fmt.Errorf("%d own, %d forwarded", own, n+rest)
			}
		}
		return err
	})

	_, more := g.receive(inbox, rest)
	countAnswers(g.t, answers, 100-n-rest)
	return from, append(all, more...), answers
}

// Forwarded pops are numbered, and come without their headers. The sender is responsible for each
// until the receiver reports it as answered. It answers lost pops at once, and the rest when the
// receiver says that it answers nothing more.
func TestReportsOfForwardedPops(t *testing.T) {
	e := start(t, testenv.Options{})
	g := newGhost(t, e)
	inbox := g.subscribe("to.ghost.*.*.pq.>")
	leave := g.appear(e)
	const enough = 6 // an answered one, a lost one, and several that are pending
	from, all, answers := g.popUntilForwarded(e, inbox, enough)
	high := all[len(all)-1].number

	for i, f := range all {
		if f.number != all[0].number+uint64(i) || len(f.headers) > 0 {
			t.Errorf("pop %d: %+v", i, f)
		}
	}

	beats := g.subscribe("members")
	report := func(r peers.Report) {
		t.Helper()
		r.Floor, r.High = all[0].number, high
		g.publish("report."+from+".ghost", encoded(g.t, r))
	}

	answer := func(f forwarded) { must(t, g.nc.Publish(f.reply, []byte("item"))) }

	// The first was answered, the second lost, and the ghost has the others for longer
	// than peerLife. Its reports say as well as heartbeats that it is there.
	leave()
	answer(all[0])
	for range 8 { // heartbeats of the bridge, which take longer than peerLife
		report(peers.Report{
			Done: peers.Numbers{all[0].number},
			Lost: []peers.Span{{First: all[1].number, Last: all[1].number}},
		})
		next(t, beats)
	}

	leave = g.keepAlive()
	if codes := countAnswers(t, answers, 2); codes[0] != 1 || codes[503] != 1 {
		t.Errorf("answers by code: %v, want an item, and 503, not run, for a lost pop", codes)
	}

	// A report that cannot be read changes nothing. Then another pop is answered, and after the
	// final report nothing more will be.
	g.publish("report."+from+".ghost", "\x00nonsense")
	answer(all[2])
	report(peers.Report{Done: peers.Numbers{all[2].number}})
	leave()
	report(peers.Report{Final: true})

	open := len(all) - 2
	codes := countAnswers(t, answers, open)
	if codes[0] != 1 || codes[unknownOutcome] != open-1 {
		t.Errorf("the rest is answered at the end, by code: %v", codes)
	}
	wantMetric(t, e.Bridge, "pq_bridges", 1)

	if n, _, err := answers.Pending(); err != nil || n > 0 {
		t.Errorf("%d superfluous answers, %v", n, err)
	}
}

// keepAlive makes the ghost send a heartbeat whenever the bridge does, until leave.
func (g *ghost) keepAlive() (leave func()) {
	g.t.Helper()
	s, err := g.nc.Subscribe(g.root+"members", func(m *nats.Msg) {
		if !strings.HasSuffix(string(m.Data), " ghost") {
			_ = g.nc.Publish(g.root+"members", []byte("here ghost"))
		}
	})
	must(g.t, err)

	return func() { _ = s.Unsubscribe() }
}

// The sender marks what it has sent, on the subject to the receiver. If the receiver is there, but
// never reports them, they are answered as unknown after a while.
func TestPopsThatAreNeverReported(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.RequestTimeout = 5 * time.Second
	}})
	g := newGhost(t, e)
	inbox, marks := g.subscribe("to.ghost.*.*.pq.>"), g.subscribe("to.ghost.*.*")
	g.appear(e)
	_, all, answers := g.popUntilForwarded(e, inbox, 1) // it has lost all of them, without knowing

	last := fmt.Sprint(".", all[len(all)-1].number) // how the subject of the mark ends
	waitUntil(t, "a mark after the last",
		func() bool { return strings.HasSuffix(next(t, marks).Subject, last) })

	if codes := countAnswers(t, answers, len(all)); codes[unknownOutcome] != len(all) {
		t.Errorf("answers by code: %v", codes)
	}
	wantMetric(t, e.Bridge, "pq_bridges", 2)
}

// forward forwards a pop to a bridge, and has it answered on answers.<number>.
func (g *ghost) forward(id string, number int, subject, payload string) {
	g.t.Helper()
	to := fmt.Sprintf("%sto.%s.ghost.%d.%s", g.root, id, number, subject)
	must(g.t, g.nc.PublishRequest(to, fmt.Sprint("answers.", number), []byte(payload)))
}

// waitForReports waits until reports of the bridge have named these, and returns the newest.
func (g *ghost) waitForReports(reports *nats.Subscription, done ...uint64) (r peers.Report) {
	g.t.Helper()
	named := map[uint64]bool{}
	for len(named) < len(done) {
		r = g.nextReport(reports)
		for _, n := range r.Done {
			if named[n] = true; !slices.Contains(done, n) {
				g.t.Fatalf("report %+v, want only %d", r, done)
			}
		}
	}
	return r
}

func (g *ghost) nextReport(reports *nats.Subscription) (r peers.Report) {
	g.t.Helper()
	must(g.t, json.Unmarshal(next(g.t, reports).Data, &r))
	return r
}

// A receiver reports which pops were answered and which did not arrive in order, until the sender
// confirms that. It does not run a pop that arrives after a later one. Its last report, when it
// shuts down, is final.
func TestReportsOfAReceiver(t *testing.T) {
	t.Parallel()

	e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Lanes = 1 }})
	g := newGhost(t, e)
	reports, beats := g.subscribe("report.ghost.*"), g.subscribe("members")
	id := senderID(next(t, beats))
	answers := subscribe(t, g.nc, "answers.*")

	// The pops are numbered from 11. The store is stuck with the first, 13 is answered without the
	// store, 12 comes after 13, and 15 and 16 never do.
	g.forward(id, 11, "pq.jobs.pop.min", "")
	<-s.entered
	g.forward(id, 13, "pq.jobs.pop.nonsense", "")
	g.forward(id, 14, "pq.jobs.pop.min", "")
	g.forward(id, 12, "pq.jobs.pop.min", "")
	g.publish("to."+id+".ghost.16", "0") // all up to 16 were sent

	want := encoded(t, peers.Report{
		Floor: 11,
		High:  16,
		Done:  peers.Numbers{13},
		Lost:  []peers.Span{{First: 12, Last: 12}, {First: 15, Last: 16}},
		After: 10,
		All:   true,
	})
	waitUntil(t, "a report of all", func() bool {
		return encoded(t, g.nextReport(reports)) == want
	})

	// The ghost has heard the three that ended, so they are not repeated.
	g.publish("to."+id+".ghost.16", "13")
	waitUntil(t, "a report of what is new", func() bool {
		r := g.nextReport(reports)
		return r.After == 13 && len(r.Done)+len(r.Lost) == 0
	})
	close(s.free)
	g.waitForReports(reports, 11, 14)

	seen := map[string]bool{}
	for range 3 {
		seen[next(t, answers).Subject] = true
	}
	if n, _, err := answers.Pending(); seen["answers.12"] || n > 0 || err != nil {
		t.Errorf("answers %v and %d more, %v", seen, n, err)
	}

	e.Bridge.BeginStop()
	waitUntil(t, "the last report", func() bool { return g.nextReport(reports).Final })
}

// A bridge that shuts down waits until each peer has promised to forward nothing more,
// and until the pops that it forwarded are answered.
func TestBridgeEndsWithPeers(t *testing.T) {
	e := start(t,
		testenv.Options{Bridge: func(o *bridge.Options) { o.ShutdownTimeout = time.Minute }})
	g := newGhost(t, e)
	inbox, beats := g.subscribe("to.ghost.*.*.pq.>"), g.subscribe("members")
	leave := g.appear(e)
	from, all, answers := g.popUntilForwarded(e, inbox, 1)
	e.Bridge.BeginStop()

	// It leaves, and still runs what its peer forwards.
	for !strings.HasPrefix(string(next(t, beats).Data), "leaving "+from) {
		g.publish("members", "here ghost")
	}

	last := subscribe(t, g.nc, "last")
	must(t, g.nc.PublishRequest(fmt.Sprintf("%sto.%s.ghost.1.pq.jobs.pop.min", g.root, from),
		"last", nil))
	if err := wantError(t, 404, "pop", next(t, last)); err.Unknown {
		t.Error(err)
	}

	// The ghost promises that 1 was the last pop.
	g.publish("to."+from+".ghost.1", "last")
	for !strings.HasPrefix(string(next(t, beats).Data), "left "+from) {
		g.publish("members", "here ghost")
	}
	// It stays alive until it considers the ghost, which has its pops, gone.
	if status, _, err := e.Bridge.Get("/healthz"); status != 200 || err != nil {
		t.Errorf("/healthz: %d, %v", status, err)
	}

	leave()
	if codes := countAnswers(t, answers, len(all)); codes[unknownOutcome] != len(all) {
		t.Errorf("answers by code: %v", codes)
	}
	e.Bridge.MustStop()
}
