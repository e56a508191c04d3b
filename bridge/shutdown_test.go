package bridge_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

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

// onWire starts a system whose only bridge has a NATS that can be frozen, and so long to end.
func onWire(t *testing.T, timeout time.Duration) (*testenv.Env, *wire) {
	t.Helper()
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	w := newWire(t, e)
	e.Bridge = newBridge(e, w.use, func(o *bridge.Options) { o.ShutdownTimeout = timeout })
	e.Conn = e.Connect()
	return e, w
}

// A server that does not answer cannot say whether requests are on their way. A bridge
// that has none still shuts down in an orderly way.
func TestShutdownNATSFrozen(t *testing.T) {
	t.Parallel()
	e, w := onWire(t, time.Minute)
	push(t, e, "pq.jobs.push", nil, "x")
	wantMetric(t, e.Bridge, `pq_requests_total{operation="push"}`, 1) // the reply does not count as one of the shutdown
	comes(t, "a confirmed reply", func() bool { return !e.Bridge.Unconfirmed() })
	w.freeze()
	if err := stops(t, e.Bridge); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Requests in progress are finished, and the error says how many replies nobody
// confirmed.
func TestShutdownNATSFrozenWithRequests(t *testing.T) {
	t.Parallel()
	e, s := stick(t, testenv.Options{})
	w := newWire(t, e)
	must(t, e.Bridge.Stop())
	var log syncLog
	e.Bridge = e.StartBridge(w.use, func(o *bridge.Options) {
		o.Logger, o.ShutdownTimeout = log.logger(), time.Minute
	})
	<-s.entered // the sweep of old receipts
	e.Bridge.WaitReady()
	_ = ask(t, e.Conn, "pq.jobs.push", "x")
	<-s.entered
	w.freeze()
	e.Bridge.BeginStop()
	testenv.Eventually(t, func() error { return log.says("NATS does not answer") })
	close(s.free)
	err := stops(t, e.Bridge)
	if err == nil || !strings.Contains(err.Error(), "did not confirm that it has the replies to 1 requests") {
		t.Errorf("Run: %v", err)
	}
	w.kill() // else the server delivers requests to the bridge that has ended
	e.Bridge = newBridge(e)
	wantLen(t, e, "pq", "jobs", 1)
}

// The client dials and logs in under its lock. A server that accepts connections and
// stays silent blocks it for as long as the client's timeouts allow.
func TestShutdownWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again: ", again), func(t *testing.T) {
			e := testenv.New(t, testenv.Options{Stopped: true, Bridge: slow})
			e.NATS.Start()
			w := newWire(t, e)
			if !again {
				w.freeze()
			}
			b := e.StartBridge(w.use, func(o *bridge.Options) { o.ShutdownTimeout = time.Minute })
			<-w.dialed
			if again {
				b.WaitReady()
				w.carries(0, toBridge)
				e.NATS.Restart() // which closes the connection of the bridge
				<-w.dialed
			}
			if err := stops(t, b); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// Replies that NATS does not read block the client's lock, for a minute by default.
func TestShutdownNATSReadsNothing(t *testing.T) {
	t.Parallel()
	e, w := onWire(t, 2*time.Second)
	push(t, e, "pq.jobs.push", nil, string(bytes.Repeat([]byte("x"), 512<<10)))
	w.carries(0, toServer)
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
		o.Lanes, o.ShutdownTimeout = 1, time.Minute
		o.Logger = log.logger()
	}})
	pushed := ask(t, e.Conn, "pq.jobs.push", "kept")
	<-s.entered
	_ = ask(t, e.Conn, "pq.jobs.pop.min", "")
	wantMetric(t, e.Bridge, "pq_pending_requests", 2)
	e.NATS.Stop()
	wantMetric(t, e.Bridge, "pq_nats_connected", 0)
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
