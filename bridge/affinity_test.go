package bridge_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

const affinitySubjects = "pq_direct_subjects"

// burst makes n requests at once and counts the replies by code, 0 for an item.
func burst(t *testing.T, nc *nats.Conn, subject string, n int) map[int]int {
	t.Helper()
	var mu sync.Mutex
	codes := map[int]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			reply, err := nc.Request(subject, nil, testenv.Patience)
			if err != nil {
				t.Error(err)
				return
			}
			code := 0
			var refused *bridge.Error
			if err := bridge.ErrorFromHeaders(reply.Header); errors.As(err, &refused) {
				code = refused.Code
			}
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	all.Wait()
	return codes
}

// busy pops from an empty queue until one of the bridges attracts its pops, and returns
// that bridge.
func busy(t *testing.T, nc *nats.Conn, subject string, bridges ...*testenv.Bridge) (taker *testenv.Bridge) {
	t.Helper()
	testenv.Eventually(t, func() error {
		burst(t, nc, subject, 256)
		for _, b := range bridges {
			if metricIs(b, affinitySubjects, 1) == nil {
				taker = b
				return nil
			}
		}
		return errors.New("no bridge attracts the pops")
	})
	return taker
}

func allForwarded(t *testing.T, bridges []*testenv.Bridge) (sum float64) {
	t.Helper()
	for _, b := range bridges {
		n, err := metric(b, "pq_passed_total")
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// NATS delivers most pops of a busy queue to the bridge that owns it, until the queue
// is idle.
func TestPopsOfABusyQueueAreAttracted(t *testing.T) {
	for _, subject := range []string{"pq.jobs.pop.min", "pq.jobs.pop.max", "q.jobs.dequeue"} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			e := testenv.New(t, testenv.Options{})
			bridges := []*testenv.Bridge{e.Bridge, e.StartBridge(), e.StartBridge()}
			for _, b := range bridges {
				b.WaitReady()
			}
			taker := busy(t, e.Conn, subject, bridges...)
			before := allForwarded(t, bridges)
			n := race.Times(2000, 600)
			if codes := burst(t, e.Conn, subject, n); codes[404] != n {
				t.Errorf("replies by code: %v, want %d of 404", codes, n)
			}
			// One in nine is expected; without it, two in three.
			if forwarded := allForwarded(t, bridges) - before; forwarded > float64(n/3) {
				t.Errorf("%v of %d pops were forwarded", forwarded, n)
			}
			wantMetric(t, taker, affinitySubjects, 0)
			if codes := burst(t, e.Conn, subject, 10); codes[404] != 10 {
				t.Errorf("replies by code when the queue is idle: %v", codes)
			}
		})
	}
}

// No pop is lost when the bridge that attracts the pops shuts down in an orderly way.
func TestBridgeOfABusyQueueEnds(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	bridges := []*testenv.Bridge{e.Bridge, e.StartBridge()}
	bridges[1].WaitReady()
	const subject = "pq.jobs.pop.min"
	n := race.Times(2000, 600)
	taker := busy(t, e.Conn, subject, bridges...)
	for i := range n {
		push(t, e, "pq.jobs.push", nil, fmt.Sprint(i))
	}
	var all sync.WaitGroup
	all.Go(func() {
		if codes := burst(t, e.Connect(), subject, n); codes[0] != n {
			t.Errorf("replies by code: %v, want %d items", codes, n)
		}
	})
	taker.BeginStop()
	all.Wait()
	<-taker.Done()
	wantQueued(t, e, 0)
}

// After NATS was away, no subscription is left over that could swallow a pop, and those
// of a queue that is still busy are made again.
func TestNATSAwayFromABusyQueue(t *testing.T) {
	const subject = "pq.jobs.pop.min"
	e := testenv.New(t, testenv.Options{})
	bridges := []*testenv.Bridge{e.Bridge, e.StartBridge(), e.StartBridge()}
	for _, b := range bridges {
		b.WaitReady()
	}
	for _, long := range []bool{false, true} {
		busy(t, e.Conn, subject, bridges...)
		e.NATS.Stop()
		for _, b := range bridges {
			wantMetric(t, b, "pq_nats_connected", 0)
			if long { // long enough for peers to be considered gone
				wantMetric(t, b, "pq_bridges", 1)
			}
		}
		e.NATS.Start()
		for _, b := range bridges {
			b.WaitReady()
		}
		const n = 500
		if codes := burst(t, e.Connect(), subject, n); codes[404] != n {
			t.Errorf("replies by code: %v, want %d of 404", codes, n)
		}
	}
	busy(t, e.Connect(), subject, bridges...)
}

// The more bridges there are, the more subscriptions the owner of a queue makes.
func TestBridgesJoinABusyQueue(t *testing.T) {
	const subject = "pq.jobs.pop.min"
	e := testenv.New(t, testenv.Options{})
	bridges := []*testenv.Bridge{e.Bridge, e.StartBridge()}
	bridges[1].WaitReady()
	busy(t, e.Conn, subject, bridges...)
	for range 4 {
		b := e.StartBridge()
		b.WaitReady()
		bridges = append(bridges, b)
	}
	testenv.Eventually(t, func() error {
		before := allForwarded(t, bridges)
		n := race.Times(2000, 600)
		burst(t, e.Conn, subject, n)
		// One in nine is expected, or five in fourteen with subscriptions for only
		// one peer.
		if forwarded := allForwarded(t, bridges) - before; forwarded > float64(n/5) {
			return fmt.Errorf("%v of %d pops were forwarded", forwarded, n)
		}
		return nil
	})
}

// onlyOnce connects once; further attempts hang until release is closed.
type onlyOnce struct {
	calls    *atomic.Int64
	attempts chan<- struct{}
	release  <-chan struct{}
}

func (o onlyOnce) Dial(network, address string) (net.Conn, error) {
	if o.calls.Add(1) == 1 {
		return net.Dial(network, address)
	}
	o.attempts <- struct{}{}
	<-o.release
	return nil, errors.New("only once")
}

// If the second connection is never established, everything else works, and the bridge
// shuts down in time.
func TestNoConnectionForABusyQueue(t *testing.T) {
	attempts, release := make(chan struct{}, 64), make(chan struct{})
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.ShutdownTimeout = 2 * time.Second
		o.NATSOptions = append(o.NATSOptions, nats.SetCustomDialer(onlyOnce{new(atomic.Int64), attempts, release}))
	}})
	bridges := []*testenv.Bridge{e.Bridge, e.StartBridge()}
	bridges[1].WaitReady()
	testenv.Eventually(t, func() error {
		if codes := burst(t, e.Conn, "pq.jobs.pop.min", 256); codes[404] != 256 {
			t.Errorf("replies by code: %v", codes)
		}
		if len(attempts) == 0 {
			return errors.New("no second connection was tried")
		}
		return nil
	})
	for _, b := range bridges {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	}
	close(release)
}

// Where NATS limits the number of subscriptions, pops are forwarded.
func TestTooManySubscriptionsForABusyQueue(t *testing.T) {
	e := testenv.New(t, testenv.Options{NATS: func(o *server.Options) { o.MaxSubs = 20 }})
	bridges := []*testenv.Bridge{e.Bridge, e.StartBridge(), e.StartBridge(), e.StartBridge()}
	for _, b := range bridges {
		b.WaitReady()
	}
	testenv.Eventually(t, func() error {
		burst(t, e.Conn, "pq.jobs.pop.min", 256)
		for _, b := range bridges {
			if n, err := metric(b, "pq_nats_errors_total"); err != nil || n > 0 {
				return err
			}
		}
		return errors.New("NATS refused nothing")
	})
	for _, b := range bridges {
		wantMetric(t, b, affinitySubjects, 0)
	}
	// There is no further attempt while the queue is busy.
	heartbeats, err := e.Conn.SubscribeSync(rootOf(t, e.Conn) + "members")
	if err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < 4*len(bridges); {
		if codes := burst(t, e.Conn, "pq.jobs.pop.min", 256); codes[404] != 256 {
			t.Errorf("replies by code: %v", codes)
		}
		for _, b := range bridges {
			if err := metricIs(b, affinitySubjects, 0); err != nil {
				t.Fatal(err)
			}
		}
		if seen, _, err = heartbeats.Pending(); err != nil {
			t.Fatal(err)
		}
	}
}

// Only subjects of pops are ever subscribed to, whatever a peer forwards.
func TestForwardedNonsenseIsNotSubscribedTo(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	ghost := newGhost(t, e)
	ghost.appear(e)
	heartbeats := ghost.hears("members")
	_, id, _ := strings.Cut(string(next(t, heartbeats).Data), " ")
	n := 0
	for _, subject := range []string{">", "pq.>", "pq.*.pop.min", "pq.jobs.push", "pq.jobs.peek.min"} {
		for range 512 {
			n++
			if err := ghost.nc.PublishRequest(fmt.Sprintf("%sto.%s.ghost.%d.%s", ghost.root, id, n, subject), "_INBOX.x", nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := ghost.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next(t, heartbeats)
	}
	wantMetric(t, e.Bridge, affinitySubjects, 0)
}
