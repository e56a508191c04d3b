package bridge_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// rootOf returns the root of the subjects between bridges, once a bridge has been
// heard.
func rootOf(t *testing.T, nc *nats.Conn) string {
	t.Helper()
	members := subscribe(t, nc, "_pqbridge.*.members")
	defer func() { _ = members.Unsubscribe() }()
	return strings.TrimSuffix(next(t, members).Subject, "members")
}

// ghost looks like another bridge to the bridges. The test decides what it says.
type ghost struct {
	t    *testing.T
	nc   *nats.Conn
	root string
}

func newGhost(t *testing.T, e *testenv.Env) *ghost {
	nc := e.Connect()
	return &ghost{t, nc, rootOf(t, nc)}
}

// publish publishes on a subject below the root.
func (g *ghost) publish(subject, text string) {
	g.t.Helper()
	must(g.t, errors.Join(g.nc.Publish(g.root+subject, []byte(text)),
		g.nc.FlushTimeout(testenv.Patience)))
}

// subscribe subscribes to a subject below the root.
func (g *ghost) subscribe(subject string) *nats.Subscription {
	g.t.Helper()
	s := subscribe(g.t, g.nc, g.root+subject)
	must(g.t, g.nc.FlushTimeout(testenv.Patience))
	return s
}

// With two bridges, each runs batches of pushes, and forwards the pops of queues that the other
// owns. When one shuts down, every pop is answered with another item.
func TestPopsOfOneQueueGoToOneBridge(t *testing.T) {
	e := start(t, testenv.Options{})
	both := []*testenv.Bridge{e.Bridge, e.StartBridge()}
	both[1].WaitReady()
	const n, size = 400, 8 // items, and how many of them a batch has

	for i := range n / size {
		var batch []subjects.Frame
		for j := range size {
			batch = append(batch, frame(int64(size-j), "", fmt.Sprint(i, " ", j)))
		}

		ok(t, e, "pq.jobs.push.batch", nil, frames(batch...))
	}

	for _, b := range both {
		if count(t, b, `pq_requests_total{operation="push-batch"}`) == 0 {
			t.Error("a bridge had no batch")
		}
	}

	// Each owns some queues, so each forwards the pops of others.
	var forwarded [2]float64
	testenv.Eventually(t, func() error {
		for i := range 64 {
			e.Request(fmt.Sprintf("pq.other-%d.pop.min", i), nil, nil)
		}

		for i, b := range both {
			var err error
			if forwarded[i], err = metric(b, "pq_passed_total"); err != nil {
				return err
			}
		}

		if forwarded[0] == 0 || forwarded[1] == 0 {
			return fmt.Errorf("forwarded: %v", forwarded)
		}

		return nil
	})

	var all sync.WaitGroup
	var mu sync.Mutex

	// Several clients pop everything. The first of them stops the second bridge on the way.
	const clients = 8
	seen := map[string]int{}

	for c := range clients {
		nc := e.Connect()
		all.Go(func() {
			for i := range n / clients {
				value := request(t, nc, "pq.jobs.pop.min", "")
				mu.Lock()
				seen[value]++
				mu.Unlock()

				if c == 0 && i == n/clients/4 {
					both[1].BeginStop()
				}
			}
		})
	}

	all.Wait()
	if len(seen) != n {
		t.Errorf("%d different items of %d came back", len(seen), n)
	}

	<-both[1].Done()
}

// appear makes the bridge believe that it has a peer, until about a second after leave.
func (g *ghost) appear(e *testenv.Env) (leave func()) {
	g.t.Helper()
	leave = g.keepAlive()
	g.publish("members", "here ghost")

	wantMetric(g.t, e.Bridge, "pq_bridges", 2)

	return leave
}

// A client's reply subject cannot make a bridge believe that NATS does not let it talk to its
// peers, even if NATS refuses the reply.
func TestReplySubjectLikeABridges(t *testing.T) {
	p := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"secret.>"}}}
	e := start(t, restricted(p, testenv.Options{}))
	second := newBridge(e)

	wantMetric(t, e.Bridge, "pq_bridges", 2)

	for range 2 { // once the second error is counted, the first has been handled
		for _, b := range []*testenv.Bridge{e.Bridge, second} {
			before := count(t, b, "pq_nats_errors_total")
			testenv.Eventually(t, func() error {
				publish(t, e, "pq.jobs.peek.min", "secret._pqbridge.to", "")
				if n, err := metric(b, "pq_nats_errors_total"); err != nil || n > before {
					return err
				}

				return errors.New("NATS refused nothing")
			})
		}
	}

	waitForPeers(t, e.Bridge, second)
}

// Pops beyond the number that a bridge can remember are not forwarded.
func TestForwardedPopsAreBounded(t *testing.T) {
	const most, queues = 10, 64 // the ghost owns about half of the queues
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxPending = most }})
	ghost := newGhost(t, e)
	ghost.subscribe("to.ghost.>")
	leave := ghost.appear(e)
	answers := popEachOf(t, e, queues)
	leave()

	if codes := countAnswers(t, answers, queues); codes[unknownOutcome] > most {
		t.Errorf("answers by code: %v", codes)
	}
}

// A reply subject is refused if it is so long that a server would close the connection
// of a bridge that forwards it.
func TestLongReplySubjects(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "item")

	const longest = 2048
	for _, size := range []int{longest, longest + 1, 4000} {
		reply := subscribe(t, e.Conn, "r."+strings.Repeat("x", size-2))
		must(t, e.Conn.PublishRequest("pq.jobs.peek.min", reply.Subject, nil))
		m, err := reply.NextMsg(testenv.Patience)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}

		if err := replyError(m.Header); errors.Is(err, errBadRequest) != (size > longest) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}

	// A subject that is too long even for the error gets no answer, and the item stays.
	must(t, e.Conn.PublishRequest("pq.jobs.pop.min", strings.Repeat("x", 4060), nil))
	wantMetric(t, e.Bridge, "pq_unanswered_total", 1)
	wantMetric(t, e.Bridge, "pq_nats_errors_total", 0)
	wantQueued(t, e, 1)
}

// Reply subjects of other accounts cannot be forwarded, so the bridge that gets such a pop answers
// it.
func TestPopsFromAnotherAccount(t *testing.T) {
	e := withAccounts(t, `
		accounts {
			QUEUES {
				users = [ {
					user: bridge, password: p
					permissions: { publish: ["_R_.>", "_pqbridge.>"] }
				} ]
				exports = [ { service: "pq.>", response: singleton } ]
			}
			CLIENTS {
				users = [ { user: client, password: p } ]
				imports = [ { service: { account: QUEUES, subject: "pq.>" }, share: true } ]
			}
		}`)

	second := newBridge(e)
	waitForPeers(t, e.Bridge, second)

	for i := range 64 {
		queue := fmt.Sprintf("pq.jobs-%d", i)
		push(t, e, queue+".push", nats.Header{"Own": {"x"}}, queue)

		m := ok(t, e, queue+".pop.min", nil, "")

		// With a reply subject NATS would remember each reply for minutes.
		if string(m.Data) != queue || len(m.Header["Own"]) != 1 ||
			len(m.Header["Nats-Request-Info"]) > 0 || m.Reply != "" {
			t.Errorf("popped %q with %v, reply subject %q", m.Data, m.Header, m.Reply)
		}
	}

	// A pop that waits is cancelled from there as well.
	waits := ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"1h","id":"far"}`)
	cancel(t, e, "pq.jobs.pop.min", "far")
	wantError(t, 404, "a cancelled pop", next(t, waits))
}

// wire is the network between bridges and the NATS server. It can be cut for good. Each direction
// can be frozen, which leaves the connections open, as a server stopped with SIGSTOP does.
type wire struct {
	net.Listener
	dialed  chan struct{} // has an element for each connection made
	running sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	conns   []net.Conn
	dead    bool
	left    [2]int // how many reads of each direction may still pass; negative if unlimited
}

const toServer, toBridge = 0, 1

func newWire(t *testing.T, e *testenv.Env) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{Listener: l, dialed: make(chan struct{}, 64), left: [2]int{-1, -1}}
	w.changed.L = &w.mu
	address := strings.TrimPrefix(e.NATS.URL(), "nats://")

	w.running.Go(func() {
		for {
			bridge, err := l.Accept()
			if err != nil {
				return
			}

			select {
			case w.dialed <- struct{}{}:
			default:
			}

			w.serve(bridge, address)
		}
	})

	t.Cleanup(func() {
		w.kill()
		_ = l.Close()
		w.running.Wait()
	})

	return w
}

func (w *wire) serve(bridge net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	w.mu.Lock()
	defer w.mu.Unlock()

	switch {
	case err != nil:
		_ = bridge.Close()
	case w.dead:
		_, _ = bridge.Close(), server.Close()
	default:
		w.conns = append(w.conns, bridge, server)
		w.running.Go(func() { w.carry(server, bridge, toServer) })
		w.running.Go(func() { w.carry(bridge, server, toBridge) })
	}
}

func (w *wire) carry(to, from net.Conn, direction int) {
	defer to.Close()
	defer from.Close()

	buffer := make([]byte, 512)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()

		for w.left[direction] == 0 && !w.dead {
			w.changed.Wait()
		}

		w.left[direction]--
		w.mu.Unlock()

		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// passReads lets each direction pass on that many reads of up to 512 bytes, and then freezes it. A
// negative number lets it pass on everything.
func (w *wire) passReads(times int, directions ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, d := range directions {
		w.left[d] = times
	}

	w.changed.Broadcast()
}

func (w *wire) freeze() { w.passReads(0, toServer, toBridge) }

// kill has the effect of killing the process of the bridge.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	w.changed.Broadcast()

	for _, c := range w.conns {
		_ = c.Close()
	}
}

// use has a bridge connect through the wire.
func (w *wire) use(o *bridge.Options) { o.NATSURL = "nats://" + w.Addr().String() }

// forwardedOnly makes a bridge get only pops that others forward, none that NATS would
// deliver to it.
func forwardedOnly(o *bridge.Options) {
	o.NATSOptions = append(o.NATSOptions, nats.UserInfo("forwarded-only", "p"))
}

// withForwardedOnly adds the user of forwardedOnly to the server.
func withForwardedOnly(o *server.Options) {
	o.Users = []*server.User{
		{Username: "all", Password: "p"},
		{Username: "forwarded-only", Password: "p", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Deny: []string{"pq.>", "q.>"}},
		}},
	}
	o.NoAuthUser = "all"
}
