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

// stopBridge stops the bridge, and returns the error of Run.
func stopBridge(t *testing.T, b *testenv.Bridge) error {
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

// A bridge without requests shuts down in an orderly way although NATS does not answer.
func TestShutdownNATSFrozen(t *testing.T) {
	t.Parallel()

	e, w := onWire(t, time.Minute)
	push(t, e, "pq.jobs.push", nil, "x")
	// The reply does not count as one of the shutdown.
	wantMetric(t, e.Bridge, `pq_requests_total{operation="push"}`, 1)
	waitUntil(t, "a confirmed reply", func() bool { return !e.Bridge.Unconfirmed() })

	w.freeze()
	if err := stopBridge(t, e.Bridge); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A bridge whose NATS does not answer finishes its requests, and the error of Run says how many
// replies nobody confirmed.
func TestShutdownNATSFrozenWithRequests(t *testing.T) {
	t.Parallel()

	e, s := startStuck(t, testenv.Options{})
	w := newWire(t, e)
	e.Bridge.MustStop()

	var log syncLog
	e.Bridge = e.StartBridge(w.use, func(o *bridge.Options) {
		o.Logger, o.ShutdownTimeout = log.logger(), time.Minute
	})
	s.awaitStart()
	e.Bridge.WaitReady()
	_ = ask(t, e.Conn, "pq.jobs.push", "x")
	<-s.entered
	w.freeze()
	e.Bridge.BeginStop()

	log.wantSays(t, "NATS does not answer")

	close(s.free)
	err := stopBridge(t, e.Bridge)
	if err == nil ||
		!strings.Contains(err.Error(), "did not confirm that it has the replies to 1 requests") {
		t.Errorf("Run: %v", err)
	}

	w.kill() // else the server delivers requests to the bridge that has ended
	e.Bridge = newBridge(e)
	wantLen(t, e, "pq", "jobs", 1)
}

// A bridge ends in time while a server accepts its connection and stays silent, which blocks the
// NATS client.
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
				w.passReads(0, toBridge)
				e.NATS.Restart() // which closes the connection of the bridge
				<-w.dialed
			}
			if err := stopBridge(t, b); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// A bridge ends in time while NATS reads none of its replies, which blocks the NATS client, and Run
// returns an error.
func TestShutdownNATSReadsNothing(t *testing.T) {
	t.Parallel()

	e, w := onWire(t, 2*time.Second)
	push(t, e, "pq.jobs.push", nil, string(bytes.Repeat([]byte("x"), 512<<10)))
	w.passReads(0, toServer)

	for range 200 { // 100 MiB, more than the network buffers hold
		publish(t, e, "pq.jobs.peek.min", nats.NewInbox(), "")
	}
	must(t, e.Conn.FlushTimeout(testenv.Patience))
	if err := stopBridge(t, e.Bridge); err == nil {
		t.Error("Run: no error, although nobody has the replies")
	}
}

// A popped item goes back if its reply cannot be sent because NATS is away.
func TestShutdownPutsBackPops(t *testing.T) {
	t.Parallel()

	var log syncLog
	e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) {
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
	log.wantSays(t, "NATS is unreachable")

	close(s.free)
	err := stopBridge(t, e.Bridge)
	const unsent = "replies not sent because NATS is unreachable: 2"
	if err == nil || !strings.Contains(err.Error(), unsent) {
		t.Errorf("Run: %v", err)
	}

	_ = pushed.Unsubscribe()
	e.NATS.Start()
	e.Bridge = newBridge(e)

	testenv.Eventually(t, e.Conn.Flush)
	wantLen(t, e, "pq", "jobs", 1)
}
