package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// rootOf returns the root of the subjects between bridges, once a bridge has been
// heard.
func rootOf(t *testing.T, nc *nats.Conn) string {
	t.Helper()
	members, err := nc.SubscribeSync("_pqbridge.*.members")
	if err != nil {
		t.Fatal(err)
	}
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

// says publishes on a subject below the root.
func (g *ghost) says(subject, text string) {
	g.t.Helper()
	if err := errors.Join(g.nc.Publish(g.root+subject, []byte(text)), g.nc.Flush()); err != nil {
		g.t.Fatal(err)
	}
}

// hears subscribes to a subject below the root.
func (g *ghost) hears(subject string) *nats.Subscription {
	g.t.Helper()
	s, err := g.nc.SubscribeSync(g.root + subject)
	if err == nil {
		err = g.nc.Flush()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// Pops of one queue go to one of two bridges, whichever NATS delivers them to. When
// that bridge shuts down, the other takes over, and every pop is answered.
func TestPopsOfOneQueueGoToOneBridge(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	both := []*testenv.Bridge{e.Bridge, e.StartBridge()}
	both[1].WaitReady()
	const n = 400
	for i := range n {
		push(t, e, "pq.jobs.push", nil, fmt.Sprint(i))
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
	seen := map[string]int{}
	for c := range 8 {
		nc := e.Connect()
		all.Go(func() {
			for i := range n / 8 {
				value := request(t, nc, "pq.jobs.pop.min", "")
				mu.Lock()
				seen[value]++
				mu.Unlock()
				if c == 0 && i == n/32 {
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

// appear makes the bridge believe for about a second that it has a peer.
func (g *ghost) appear(e *testenv.Env) {
	g.t.Helper()
	g.says("members", "here ghost")
	wantMetric(g.t, e.Bridge, "pq_bridges", 2)
}

// Pops forwarded to a bridge that is gone are answered by the one that forwarded them,
// which then runs later pops itself.
func TestPopsForwardedToABridgeThatIsGone(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	const queues = 32
	for i := range queues {
		push(t, e, fmt.Sprintf("pq.jobs-%d.push", i), nil, "item")
	}
	ghost := newGhost(t, e)
	swallowed := ghost.hears("to.ghost.*.*.pq.>")
	ghost.appear(e)
	unknown, popped := 0, 0
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range queues {
		all.Go(func() {
			reply, err := e.Conn.Request(fmt.Sprintf("pq.jobs-%d.pop.min", i), nil, testenv.Patience)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			var refused *bridge.Error
			switch err := bridge.ErrorFromHeaders(reply.Header); {
			case err == nil:
				popped++
			case errors.As(err, &refused) && refused.Code == 503 && refused.Unknown:
				unknown++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n, _, err := swallowed.Pending(); err != nil || unknown != n || unknown == 0 || popped != queues-unknown {
		t.Errorf("%d unknown, %d popped, %d forwarded to a bridge that is gone, %v", unknown, popped, n, err)
	}
	again := 0
	for i := range queues {
		reply := e.Request(fmt.Sprintf("pq.jobs-%d.pop.min", i), nil, nil)
		if bridge.ErrorFromHeaders(reply.Header) == nil {
			again++
		}
	}
	if again != unknown {
		t.Errorf("%d items are left, want %d", again, unknown)
	}
}

// A client cannot make a bridge believe that NATS does not let it talk to its peers.
func TestReplySubjectLikeABridges(t *testing.T) {
	p := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"secret.>"}}}
	e := testenv.New(t, restricted(p, testenv.Options{}))
	second := e.StartBridge()
	second.WaitReady()
	wantMetric(t, e.Bridge, "pq_bridges", 2)
	for range 2 { // once the second error is counted, the first has been handled
		for _, b := range []*testenv.Bridge{e.Bridge, second} {
			before, err := metric(b, "pq_nats_errors_total")
			if err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, func() error {
				publish(t, e, "pq.jobs.peek.min", "secret._pqbridge.to", "")
				if n, err := metric(b, "pq_nats_errors_total"); err != nil || n > before {
					return err
				}
				return errors.New("NATS refused nothing")
			})
		}
	}
	together(t, e.Bridge, second)
}

// Pops beyond the number that a bridge can remember are not forwarded.
func TestForwardedPopsAreBounded(t *testing.T) {
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxPending = 10 }})
	ghost := newGhost(t, e)
	ghost.hears("to.ghost.>")
	ghost.appear(e)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if _, err := e.Conn.Request(fmt.Sprintf("pq.jobs-%d.pop.min", i), nil, testenv.Patience); err != nil {
				t.Errorf("pop %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// A reply subject is refused if it is so long that a server would close the connection
// of a bridge that forwards it.
func TestLongReplySubjects(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "item")
	for _, size := range []int{2048, 2049, 4000} {
		reply, err := e.Conn.SubscribeSync("r." + strings.Repeat("x", size-2))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Conn.PublishRequest("pq.jobs.peek.min", reply.Subject, nil); err != nil {
			t.Fatal(err)
		}
		m, err := reply.NextMsg(testenv.Patience)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := bridge.ErrorFromHeaders(m.Header); errors.Is(err, bridge.ErrBadRequest) != (size > 2048) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if err := e.Conn.PublishRequest("pq.jobs.pop.min", strings.Repeat("x", 4060), nil); err != nil {
		t.Fatal(err)
	}
	wantMetric(t, e.Bridge, "pq_unanswered_total", 1)
	wantMetric(t, e.Bridge, "pq_nats_errors_total", 0)
	wantQueued(t, e, 1)
}

// Clients of another account, whose reply subjects cannot be forwarded, are answered by
// whichever bridge gets their pops.
func TestPopsFromAnotherAccount(t *testing.T) {
	e := withAccounts(t, `
		accounts {
			QUEUES { users = [ { user: bridge, password: p, permissions: { publish: ["_R_.>", "_pqbridge.>"] } } ], exports = [ { service: "pq.>", response: singleton } ] }
			CLIENTS { users = [ { user: client, password: p } ], imports = [ { service: { account: QUEUES, subject: "pq.>" }, share: true } ] }
		}`)
	second := e.StartBridge()
	second.WaitReady()
	together(t, e.Bridge, second)
	for i := range 64 {
		queue := fmt.Sprintf("pq.jobs-%d", i)
		push(t, e, queue+".push", nats.Header{"Own": {"x"}}, queue)
		m := ok(t, e, queue+".pop.min", nil, "")
		// With a reply subject NATS would remember each reply for minutes.
		if string(m.Data) != queue || len(m.Header["Own"]) != 1 || len(m.Header["Nats-Request-Info"]) > 0 || m.Reply != "" {
			t.Errorf("popped %q with %v, reply subject %q", m.Data, m.Header, m.Reply)
		}
	}
}
