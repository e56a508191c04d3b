package bridge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/testenv"
)

// proxy forwards connections until it is cut.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	conns []net.Conn
	down  bool
	all   sync.WaitGroup
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, to: to}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close() // ends accept
		p.cut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = from.Close() // whoever dialed tries again
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, to)
		down := p.down
		p.mu.Unlock()
		if down {
			p.cut()
			continue
		}
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			p.all.Go(func() {
				_, _ = io.Copy(pair[0], pair[1]) // ends with an error when cut
				_ = pair[0].Close()              // which the other direction notices
			})
		}
	}
}

// cut ends all connections, and lets no other live.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for _, c := range p.conns {
		_ = c.Close() // whatever it had to say is lost
	}
	p.conns = nil
}

// mortal is a bridge that can be killed.
type mortal struct {
	*testenv.Bridge
	store      *faultkv.DB
	nats, leaf *proxy
}

// kill makes it reach nothing any more, as if its process was gone.
func (m *mortal) kill() {
	m.store.SetOutage(true)
	m.nats.cut()
	m.leaf.cut()
}

func startMortal(t testing.TB, e *testenv.Env, l *landscape) *mortal {
	t.Helper()
	_, natsAddress, _ := strings.Cut(l.natsURL, "://")
	_, leafAddress, _ := strings.Cut(l.leafURL, "://")
	m := &mortal{store: faultkv.New(e.DB, faultkv.Options{}), nats: newProxy(t, natsAddress), leaf: newProxy(t, leafAddress)}
	m.Bridge = newBridge(e, func(o *bridge.Options) {
		o.NATSURL, o.JetStream.LeafURL = "nats://"+m.nats.listener.Addr().String(), m.leaf.listener.Addr().String()
		o.DB, o.ShutdownTimeout, o.Logger = m.store, time.Second, slog.New(slog.DiscardHandler)
	})
	return m
}

// Bridges of one store share the requests. What one had when it was killed comes again.
func TestJetStreamBridgeIsKilled(t *testing.T) {
	t.Parallel()
	for _, engine := range []testenv.Engine{testenv.Mem(), {Name: "fdb", Open: testenv.FDB}} {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()
			testBridgeIsKilled(t, engine)
		})
	}
}

func testBridgeIsKilled(t *testing.T, engine testenv.Engine) {
	e := testenv.New(t, testenv.Options{Engine: engine, Stopped: true})
	s := natsServer(t, "leafnodes { listen: \"127.0.0.1:-1\", no_advertise: true }")
	l := &landscape{natsURL: s.ClientURL(), leafURL: leafURLOf(t, s, ""), clientURL: s.ClientURL()}
	var bridges []*mortal
	for range 3 {
		bridges = append(bridges, startMortal(t, e, l))
	}

	nc := dial(t, l.clientURL)
	js := l.jetStream(t, nc)
	c, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{
		Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: -1})
	must(t, err)
	reachesOne(t, js, bridges)

	w := &shift{t: t, js: js, c: c, seen: map[string]bool{}}
	w.push(300)
	stop := w.start(3)
	testenv.Eventually(t, func() error { return w.atLeast(50) })
	bridges[0].kill()
	w.push(100)
	testenv.Eventually(t, func() error { return w.atLeast(400) })
	testenv.Eventually(t, func() error { return nothingLeft(t, e) })
	stop()

	waitingPullsEnd(t, nc, bridges[1:])
}

// nothingLeft returns an error while the queue has items, or leases.
func nothingLeft(t *testing.T, e *testenv.Env) error {
	left, err := kv.ReadTransact(t.Context(), e.DB, func(r kv.Reader) (fdbpq.Result, error) {
		results, err := fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpInfo, Queue: jobsOf(t, e)}})
		return results[0], err
	})
	if err == nil && left.Info.Ready+left.Info.Leased > 0 {
		err = fmt.Errorf("%d items and %d leases are left", left.Info.Ready, left.Info.Leased)
	}
	return err
}

// reachesOne makes requests, each of which reaches exactly one bridge.
func reachesOne(t *testing.T, js jetstream.JetStream, bridges []*mortal) {
	t.Helper()
	const series, n = `pq_jetstream_requests_total{call="STREAM.NAMES"}`, 200
	for range n {
		names := js.StreamNames(t.Context())
		for range names.Name() {
		}
		must(t, names.Err())
	}
	total := 0.0
	for _, b := range bridges {
		got := count(t, b.Bridge, series)
		if got == 0 {
			t.Error("a bridge got no request")
		}
		total += got
	}
	same(t, "answered requests", total, n)
}

// waitingPullsEnd kills one of two bridges, each of which owns queues that pulls wait for, and stops the
// other one. Pulls of the latter end with a status; those of the former miss their heartbeats.
func waitingPullsEnd(t *testing.T, nc *nats.Conn, bridges []*mortal) {
	t.Helper()
	const n = 40
	for _, b := range bridges { // so that the queues have owners who live
		testenv.Eventually(t, func() error { return metricIs(b.Bridge, "pq_bridges", 2) })
	}
	root := nc.NewInbox()
	s := subscribe(t, nc, root+".*")
	for i := range n {
		must(t, nc.PublishRequest(fmt.Sprintf("$JS.pq.API.CONSUMER.MSG.NEXT.wait%d.min", i), fmt.Sprintf("%s.%d", root, i), []byte(`{"expires":60000000000}`)))
	}
	var waiting [2]float64
	testenv.Eventually(t, func() (err error) {
		for i, b := range bridges {
			if waiting[i], err = metric(b.Bridge, "pq_waiters"); err != nil {
				return err
			}
		}
		if waiting[0]+waiting[1] != n {
			return fmt.Errorf("%v wait", waiting)
		}
		return nil
	})
	if waiting[0] == 0 || waiting[1] == 0 {
		t.Errorf("%v pulls wait", waiting)
	}

	bridges[0].kill()
	must(t, bridges[1].Stop())
	for range int(waiting[1]) {
		same(t, "the status", next(t, s).Header.Get("Description"), "Server Shutdown")
	}
	must(t, nc.Flush())
	if n, _, err := s.Pending(); err != nil || n > 0 {
		t.Errorf("%d more messages: %v", n, err)
	}
}

// shift is workers who take and acknowledge items.
type shift struct {
	t  *testing.T
	js jetstream.JetStream
	c  jetstream.Consumer

	pushed int

	mu   sync.Mutex
	seen map[string]bool // the items that came, and whether their acknowledgement was confirmed
}

// push pushes more items, whatever happens to bridges.
func (w *shift) push(n int) {
	w.t.Helper()
	for range n {
		w.pushed++
		id := fmt.Sprint(w.pushed)
		testenv.Eventually(w.t, func() error {
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			defer cancel()
			_, err := w.js.Publish(ctx, "pq.jobs.push", []byte(id), jetstream.WithMsgID(id))
			return err
		})
	}
}

func (w *shift) start(workers int) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				w.work(ctx)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// work takes a few items. Those whose acknowledgement is not confirmed may come again.
func (w *shift) work(ctx context.Context) {
	batch, err := w.c.Fetch(5, jetstream.FetchMaxWait(300*time.Millisecond))
	if err != nil {
		return // a bridge is gone
	}
	for m := range batch.Messages() {
		id := string(m.Data())
		if w.saw(id, false) {
			w.t.Errorf("%s came after its acknowledgement was confirmed", id)
		}
		confirming, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		if m.DoubleAck(confirming) == nil {
			w.saw(id, true)
		}
		cancel()
	}
}

// saw notes an item, and returns whether it was confirmed before.
func (w *shift) saw(id string, confirmed bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.seen[id]
	w.seen[id] = before || confirmed
	return before
}

func (w *shift) atLeast(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) < n {
		return fmt.Errorf("%d items of %d came", len(w.seen), n)
	}
	return nil
}
