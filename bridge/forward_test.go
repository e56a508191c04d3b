package bridge_test

import (
	"errors"
	"fmt"
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
func encoded(r peers.Report) string { return string(r.Encode(64 << 10)) }

// heartbeats waits until each bridge has sent that many more heartbeats.
func heartbeats(t *testing.T, nc *nats.Conn, bridges, times int) {
	t.Helper()
	said := subscribe(t, nc, "_pqbridge.>")
	defer func() { _ = said.Unsubscribe() }()
	counts, enough := map[string]int{}, 0
	for enough < bridges {
		m := next(t, said)
		if !strings.Contains(m.Subject, ".members") || strings.HasPrefix(string(m.Data), "{") {
			continue
		}
		id := m.Data[strings.LastIndexByte(string(m.Data), ' ')+1:]
		if counts[string(id)]++; counts[string(id)] == times {
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
			Subject: strings.Replace(subject, "%d", number, 1), Reply: inbox + "." + number,
			Header: nats.Header{"Other": {"x"}}, Data: []byte(payload),
		}))
	}
	must(t, e.Conn.FlushTimeout(testenv.Patience))
	return answers
}

// pops requests one pop from each of n queues.
func pops(t *testing.T, e *testenv.Env, n int) *nats.Subscription {
	t.Helper()
	return askMany(t, e, n, "pq.jobs-%d.pop.min", "")
}

// collect waits for n answers, one for each request, and counts them by code, 0 for success. An
// unknown outcome adds 1000 to the code.
func collect(t *testing.T, answers *nats.Subscription, n int) map[int]int {
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
		var refused *bridge.Error
		switch {
		case !errors.As(bridge.ErrorFromHeaders(m.Header), &refused):
			codes[0]++
		case refused.Unknown:
			codes[1000+refused.Code]++
		default:
			codes[refused.Code]++
		}
	}
	return codes
}

// A bridge dies after a last heartbeat while it has pops of others. Each of them is
// answered.
func TestPopsOfABridgeThatDies(t *testing.T) {
	const n, enough = 120, 12
	e := start(t, testenv.Options{NATS: withForwardedOnly})
	second := newBridge(e)
	slow := stuck{Database: e.DB, entered: make(chan struct{}, n), free: make(chan struct{})}
	w := newWire(t, e)
	third := e.StartBridge(w.use, forwardedOnly, func(o *bridge.Options) { o.DB = slow })
	together(t, e.Bridge, second, third)
	answers := pops(t, e, n)
	testenv.Eventually(t, func() error {
		if have, err := metric(third, "pq_pending_requests"); err != nil || have < enough {
			return fmt.Errorf("the slow bridge has %v pops, %v", have, err)
		}
		return nil
	})
	heartbeats(t, e.Conn, 3, 2)
	w.kill()
	codes := collect(t, answers, n)
	if codes[1503] < enough || codes[404]+codes[1503] != n {
		t.Errorf("answers by code: %v", codes)
	}
	together(t, e.Bridge, second)
	if codes := collect(t, pops(t, e, n), n); codes[404] != n {
		t.Errorf("answers by code when it is gone: %v", codes)
	}
	close(slow.free)
	_ = third.Stop() // it is dead, and reports the requests that it could not answer
}

// A bridge freezes for longer than peerLife and comes back. The others have answered
// the pops that it had, and from then on everything is as before.
func TestPopsOfABridgeThatFreezes(t *testing.T) {
	const n = 120
	e := start(t, testenv.Options{NATS: withForwardedOnly})
	second := newBridge(e)
	w := newWire(t, e)
	third := e.StartBridge(w.use, forwardedOnly)
	bridges := func(n float64, which ...*testenv.Bridge) {
		t.Helper()
		for _, b := range which {
			wantMetric(t, b, "pq_bridges", n)
		}
	}
	bridges(3, e.Bridge, second, third)
	w.freeze()
	answers := pops(t, e, n)
	codes := collect(t, answers, n)
	if codes[1503] == 0 || codes[404]+codes[1503] != n {
		t.Errorf("answers by code while it is frozen: %v", codes)
	}
	bridges(2, e.Bridge, second)
	w.carries(-1, toServer, toBridge)
	bridges(3, e.Bridge, second, third)
	late := 0
	testenv.Eventually(t, func() (err error) { // the frozen bridge runs and answers what it was sent
		if late, _, err = answers.Pending(); err == nil && late != codes[1503] {
			err = fmt.Errorf("%d late answers, want %d", late, codes[1503])
		}
		return err
	})
	if codes := collect(t, pops(t, e, n), n); codes[404] != n {
		t.Errorf("answers by code when it is back: %v", codes)
	}
}

// A bridge that shuts down takes the pops of peers that have not yet heard of it.
// On a machine that stands still meanwhile, the bridges may take each other for gone: then it is tried again.
func TestPopsForwardedToABridgeThatEnds(t *testing.T) {
	t.Parallel()
	const n = 100
	var codes map[int]int
	for range 10 {
		codes = popsForwardedToABridgeThatEnds(t, n)
		if codes[404] == n {
			return
		}
		if codes[404]+codes[1503] != n {
			break
		}
	}
	t.Errorf("answers by code: %v, want %d of 404", codes, n)
}

func popsForwardedToABridgeThatEnds(t *testing.T, n int) map[int]int {
	e := testenv.New(t, testenv.Options{NATS: withForwardedOnly, Stopped: true})
	e.NATS.Start()
	e.Conn = e.Connect()
	w := newWire(t, e)
	first := newBridge(e, w.use)
	second := e.StartBridge(forwardedOnly)
	together(t, first, second)
	w.carries(0, toBridge)
	answers := pops(t, e, n) // on their way to the first bridge
	second.BeginStop()
	notReady(t, second, "shutting down")
	heartbeats(t, e.Conn, 1, 3)
	w.carries(8, toBridge) // the first pops
	testenv.Eventually(t, func() error {
		if forwarded, err := metric(first, "pq_passed_total"); err != nil || forwarded == 0 {
			return fmt.Errorf("%v pops were forwarded, %w", forwarded, err)
		}
		return nil
	})
	w.carries(-1, toBridge) // the rest of them, and that the other one shuts down
	codes := collect(t, answers, n)
	<-second.Done()
	return codes
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

// until pops until at least n pops have been forwarded to the ghost. It returns those
// and the subscription to their answers.
func (g *ghost) until(e *testenv.Env, inbox *nats.Subscription, n int) (from string, all []forwarded, answers *nats.Subscription) {
	g.t.Helper()
	answers = pops(g.t, e, 100)
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
	collect(g.t, answers, 100-n-rest)
	return from, append(all, more...), answers
}

// The sender is responsible for a forwarded pop until the receiver reports it as
// answered. It answers lost pops at once, and the rest when the receiver says that it
// answers nothing more.
func TestReportsOfForwardedPops(t *testing.T) {
	e := start(t, testenv.Options{})
	g := newGhost(t, e)
	inbox := g.hears("to.ghost.*.*.pq.>")
	leave := g.appear(e)
	from, all, answers := g.until(e, inbox, 6)
	high := all[len(all)-1].number
	for i, f := range all {
		if f.number != all[0].number+uint64(i) || len(f.headers) > 0 {
			t.Errorf("pop %d: %+v", i, f)
		}
	}
	beats := g.hears("members")
	report := func(r peers.Report) {
		t.Helper()
		r.Floor, r.High = all[0].number, high
		g.says("report."+from+".ghost", encoded(r))
	}
	// The first was answered, the second lost, and the ghost has the others for longer
	// than peerLife. Its reports say as well as heartbeats that it is there.
	leave()
	pending := []uint64{}
	for _, f := range all[2:] {
		pending = append(pending, f.number)
	}
	for range 8 {
		report(peers.Report{Lost: []peers.Span{{First: all[1].number, Last: all[1].number}}, Pending: pending})
		next(t, beats)
	}
	leave = g.stays()
	if codes := collect(t, answers, 1); codes[503] != 1 {
		t.Errorf("a lost pop is answered by code: %v, want 503, not run", codes)
	}
	g.says("report."+from+".ghost", "\x00nonsense")
	report(peers.Report{Pending: pending[1:]})
	leave()
	report(peers.Report{Pending: pending[1:], Final: true})
	if codes := collect(t, answers, len(pending)-1); codes[1503] != len(pending)-1 {
		t.Errorf("the rest is answered at the end, by code: %v", codes)
	}
	wantMetric(t, e.Bridge, "pq_bridges", 1)
	if n, _, err := answers.Pending(); err != nil || n > 0 {
		t.Errorf("%d superfluous answers, %v", n, err)
	}
}

// stays makes the ghost send a heartbeat whenever the bridge does, until leave.
func (g *ghost) stays() (leave func()) {
	g.t.Helper()
	s, err := g.nc.Subscribe(g.root+"members", func(m *nats.Msg) {
		if !strings.HasSuffix(string(m.Data), " ghost") {
			_ = g.nc.Publish(g.root+"members", []byte("here ghost"))
		}
	})
	must(g.t, err)
	return func() { _ = s.Unsubscribe() }
}

// The sender asks about pops that are not reported, on the way that they took, and does
// not wait indefinitely for a receiver that does not know them.
func TestPopsThatAreNeverReported(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.RequestTimeout = 5 * time.Second }})
	g := newGhost(t, e)
	inbox, marks := g.hears("to.ghost.*.*.pq.>"), g.hears("to.ghost.*.*")
	g.appear(e)
	_, all, answers := g.until(e, inbox, 1) // it has lost all of them, without knowing
	last := fmt.Sprint(".", all[len(all)-1].number)
	comes(t, "a question about all up to the last", func() bool { return strings.HasSuffix(next(t, marks).Subject, last) })
	if codes := collect(t, answers, len(all)); codes[1503] != len(all) {
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

// reported waits until the bridge sends that report.
func (g *ghost) reported(reports *nats.Subscription, want peers.Report) {
	g.t.Helper()
	testenv.Eventually(g.t, func() error {
		last, err := peers.ParseReport(next(g.t, reports).Data)
		if err != nil || fmt.Sprint(last) != fmt.Sprint(want) {
			return fmt.Errorf("report %+v, want %+v, %w", last, want, err)
		}
		return nil
	})
}

// A receiver reports what it has answered, what it still has and what did not arrive,
// and does not run a pop that arrives after it was reported lost.
func TestReportsOfAReceiver(t *testing.T) {
	t.Parallel()
	e, s := stick(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Lanes = 1 }})
	g := newGhost(t, e)
	reports, beats := g.hears("report.ghost.*"), g.hears("members")
	_, id, _ := strings.Cut(string(next(t, beats).Data), " ")
	answers := subscribe(t, g.nc, "answers.*")
	g.forward(id, 11, "pq.jobs.pop.min", "")
	<-s.entered
	g.forward(id, 13, "pq.jobs.pop.nonsense", "")
	g.forward(id, 14, "pq.jobs.pop.min", "")
	g.forward(id, 12, "pq.jobs.pop.min", "") // late
	g.says("to."+id+".ghost.16", "")
	lost := []peers.Span{{First: 12, Last: 12}, {First: 15, Last: 16}}
	g.reported(reports, peers.Report{Floor: 11, High: 16, Lost: lost, Pending: []uint64{11, 14}})
	close(s.free)
	g.reported(reports, peers.Report{Floor: 11, High: 16, Lost: lost})
	seen := map[string]bool{}
	for range 3 {
		seen[next(t, answers).Subject] = true
	}
	if n, _, err := answers.Pending(); seen["answers.12"] || n > 0 || err != nil {
		t.Errorf("answers %v and %d more, %v", seen, n, err)
	}
	e.Bridge.BeginStop()
	g.reported(reports, peers.Report{Floor: 11, High: 16, Lost: lost, Final: true})
}

// A bridge that shuts down waits until each peer has promised to forward nothing more,
// and until the pops that it forwarded are answered.
func TestBridgeEndsWithPeers(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.ShutdownTimeout = time.Minute }})
	g := newGhost(t, e)
	inbox, beats := g.hears("to.ghost.*.*.pq.>"), g.hears("members")
	leave := g.appear(e)
	from, all, answers := g.until(e, inbox, 1)
	e.Bridge.BeginStop()
	for string(next(t, beats).Data) != "leaving "+from {
		g.says("members", "here ghost")
	}
	last := subscribe(t, g.nc, "last")
	must(t, g.nc.PublishRequest(fmt.Sprintf("%sto.%s.ghost.1.pq.jobs.pop.min", g.root, from), "last", nil))
	if err := isError(t, 404, "pop", next(t, last)); err.Unknown {
		t.Error(err)
	}
	g.says("to."+from+".ghost.1", "last")
	for string(next(t, beats).Data) != "left "+from {
		g.says("members", "here ghost")
	}
	// It stays alive until it considers the ghost, which has its pops, gone.
	if status, _, err := e.Bridge.Get("/healthz"); status != 200 || err != nil {
		t.Errorf("/healthz: %d, %v", status, err)
	}
	leave()
	if codes := collect(t, answers, len(all)); codes[1503] != len(all) {
		t.Errorf("answers by code: %v", codes)
	}
	must(t, e.Bridge.Stop())
}
