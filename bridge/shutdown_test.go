package bridge_test

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// freezer stands between a bridge and the NATS server. Once frozen it carries nothing
// more and leaves the connections open, as a server stopped with SIGSTOP does.
type freezer struct {
	net.Listener
	dialed   chan struct{} // has an element for each connection made
	toServer chan struct{} // closed to freeze the direction from the bridge
	toBridge chan struct{} // closed to freeze the direction from the server
	over     chan struct{}
	running  sync.WaitGroup
	end      func() // closes all connections
}

func newFreezer(t *testing.T, server string) *freezer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &freezer{Listener: l, dialed: make(chan struct{}, 64),
		toServer: make(chan struct{}), toBridge: make(chan struct{}), over: make(chan struct{})}
	f.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			f.dialed <- struct{}{}
			f.running.Go(func() { f.serve(client, strings.TrimPrefix(server, "nats://")) })
		}
	})
	f.end = sync.OnceFunc(func() {
		close(f.over)
		_ = l.Close()
		f.running.Wait()
	})
	t.Cleanup(f.end)
	return f
}

func (f *freezer) url() string { return "nats://" + f.Addr().String() }

func (f *freezer) freeze() {
	close(f.toServer)
	close(f.toBridge)
}

func (f *freezer) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	carry := func(to, from net.Conn, frozen <-chan struct{}) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			select {
			case <-frozen:
				<-f.over
				err = net.ErrClosed
			default:
			}
			if err == nil {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				_ = client.Close()
				_ = server.Close()
				return
			}
		}
	}
	both.Go(func() { carry(server, client, f.toServer) })
	both.Go(func() { carry(client, server, f.toBridge) })
	both.Wait()
}

// stops stops the bridge, and returns the error of Run.
func stops(t *testing.T, b *testenv.Bridge) error {
	t.Helper()
	b.BeginStop()
	select {
	case <-b.Done():
	case <-time.After(testenv.Patience):
		t.Fatalf("it still runs after %v", testenv.Patience)
	}
	return b.Stop()
}

// startBehind starts a bridge on the store of e, with a NATS that can be frozen.
func startBehind(t *testing.T, e *testenv.Env, f *freezer, timeout time.Duration, changes ...func(*bridge.Options)) *testenv.Bridge {
	t.Helper()
	return e.StartBridge(append(changes, func(o *bridge.Options) {
		o.NATSURL, o.ShutdownTimeout = f.url(), timeout
	})...)
}

// behindFreezer starts a system whose only bridge has a NATS that can be frozen.
func behindFreezer(t *testing.T, timeout time.Duration) (*testenv.Env, *freezer) {
	t.Helper()
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	f := newFreezer(t, e.NATS.URL())
	e.Bridge = startBehind(t, e, f, timeout)
	e.Bridge.WaitReady()
	e.Conn = e.Connect()
	return e, f
}

// A server that does not answer cannot say whether requests are on their way. A bridge
// that has none still shuts down in an orderly way.
func TestShutdownNATSFrozen(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	e, f := behindFreezer(t, timeout)
	push(t, e, "pq.jobs.push", nil, "x")
	comes(t, "a confirmed reply", func() bool { return !e.Bridge.Unconfirmed() })
	f.freeze()
	if err := stops(t, e.Bridge); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Requests in progress are finished, and the error says how many replies nobody
// confirmed.
func TestShutdownNATSFrozenWithRequests(t *testing.T) {
	t.Parallel()
	const timeout = time.Minute
	e, s := stick(t, testenv.Options{})
	f := newFreezer(t, e.NATS.URL())
	must(t, e.Bridge.Stop())
	var log syncLog
	e.Bridge = startBehind(t, e, f, timeout, func(o *bridge.Options) { o.Logger = log.logger() })
	<-s.entered // the sweep of old receipts
	e.Bridge.WaitReady()
	_ = async(t, e, "pq.jobs.push", "x")
	<-s.entered
	f.freeze()
	e.Bridge.BeginStop()
	testenv.Eventually(t, func() error { return log.says("NATS does not answer") })
	close(s.free)
	err := stops(t, e.Bridge)
	if err == nil || !strings.Contains(err.Error(), "did not confirm that it has the replies to 1 requests") {
		t.Errorf("Run: %v", err)
	}
	f.end() // else the server delivers requests to the bridge that has ended
	e.Bridge = newBridge(e)
	wantLen(t, e, "pq", "jobs", 1)
}

// The client dials and logs in under its lock. A server that accepts connections and
// stays silent blocks it for as long as the client's timeouts allow.
func TestShutdownWhileConnecting(t *testing.T) {
	t.Parallel()
	patient := func(o *bridge.Options) { o.NATSOptions = append(o.NATSOptions, nats.Timeout(time.Hour)) }
	t.Run("first", func(t *testing.T) {
		e := testenv.New(t, testenv.Options{Stopped: true, Bridge: patient})
		e.NATS.Start()
		f := newFreezer(t, e.NATS.URL())
		f.freeze()
		b := startBehind(t, e, f, time.Minute)
		<-f.dialed
		if err := stops(t, b); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Run("again", func(t *testing.T) {
		e := testenv.New(t, testenv.Options{Stopped: true, Bridge: patient})
		e.NATS.Start()
		f := newFreezer(t, e.NATS.URL())
		b := startBehind(t, e, f, time.Minute)
		b.WaitReady()
		<-f.dialed
		close(f.toBridge)
		e.NATS.Stop() // which closes the connection of the bridge
		e.NATS.Start()
		<-f.dialed
		if err := stops(t, b); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Replies that NATS does not read block the client's lock, for a minute by default.
func TestShutdownNATSReadsNothing(t *testing.T) {
	t.Parallel()
	e, f := behindFreezer(t, 2*time.Second)
	push(t, e, "pq.jobs.push", nil, string(bytes.Repeat([]byte("x"), 512<<10)))
	close(f.toServer)
	for range 200 { // 100 MiB, more than the network buffers hold
		publish(t, e, "pq.jobs.peek.min", nats.NewInbox(), "")
	}
	must(t, e.Conn.FlushTimeout(testenv.Patience))
	if err := stops(t, e.Bridge); err == nil {
		t.Error("Run: no error, although nobody has the replies")
	}
}

// A popped item is pushed again if its reply cannot be sent because NATS is away.
func TestShutdownPutsBackPops(t *testing.T) {
	t.Parallel()
	var log syncLog
	e, s := stick(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Lanes = 1
		o.Logger = log.logger()
	}})
	pushed := async(t, e, "pq.jobs.push", "kept")
	<-s.entered
	_ = async(t, e, "pq.jobs.pop.min", "")
	wantMetric(t, e.Bridge, "pq_pending_requests", 2)
	e.NATS.Stop()
	notReady(t, e.Bridge, "nats: not connected")
	e.Bridge.BeginStop()
	testenv.Eventually(t, func() error { return log.says("NATS is away") })
	close(s.free)
	err := stops(t, e.Bridge)
	if err == nil || !strings.Contains(err.Error(), "2 replies could not be sent") {
		t.Errorf("Run: %v", err)
	}
	_ = pushed.Unsubscribe()
	e.NATS.Start()
	e.Bridge = newBridge(e)
	testenv.Eventually(t, e.Conn.Flush)
	wantLen(t, e, "pq", "jobs", 1)
}
