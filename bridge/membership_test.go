package bridge_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// on makes a bridge use another store.
func on(db kv.Database, location string) func(*bridge.Options) {
	return func(o *bridge.Options) { o.DB, o.Location = db, location }
}

// inGroup makes a bridge a member of another queue group.
func inGroup(group string) func(*bridge.Options) {
	return func(o *bridge.Options) { o.QueueGroup = group }
}

// withPrefixes makes a bridge serve other subjects.
func withPrefixes(t *testing.T, priority, fifo string) func(*bridge.Options) {
	t.Helper()
	grammar, err := subjects.New(priority, fifo)
	must(t, err)
	return func(o *bridge.Options) { o.Grammar = grammar }
}

// wantRefused waits until the bridge has ended and checks that the error says why.
func wantRefused(t *testing.T, b *testenv.Bridge, words ...string) {
	t.Helper()
	<-b.Done()
	err := b.Stop()
	if !errors.Is(err, peers.ErrSubjectsTaken) {
		t.Errorf("Run: %v, want %v", err, peers.ErrSubjectsTaken)
		return
	}

	host, hostErr := os.Hostname()
	if hostErr != nil {
		t.Fatal(hostErr)
	}

	for _, word := range append(words, host) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
}

// A bridge that serves the same subjects as another one, but has another store, group or prefixes,
// ends with an error that says so, before it gets a request.
func TestConflictingBridge(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		other := memkv.New(memkv.Options{})
		defer func() { _ = other.Close() }()

		e := testenv.New(t, testenv.Options{
			Engine: engine,
			Bridge: func(o *bridge.Options) { o.Location = "/data/first" },
		})

		const n = 20
		for name, c := range map[string]struct {
			changes []func(*bridge.Options)
			words   []string
		}{
			"another store": {
				[]func(*bridge.Options){on(other, "/data/second")},
				[]string{"another store", "/data/first", "/data/second", "subject prefixes"},
			},
			"another group": {
				[]func(*bridge.Options){inGroup("pq2")},
				[]string{"run twice", `"pq"`, `"pq2"`, "/data/first"},
			},
			"both": {
				[]func(*bridge.Options){inGroup("pq2"), on(other, "")},
				[]string{"another store"},
			},
			"one prefix": {
				[]func(*bridge.Options){withPrefixes(t, "pq", "fifo")}, []string{"prefixes"},
			},
			"a longer one": {
				[]func(*bridge.Options){withPrefixes(t, "pq.jobs", "fifo"), on(other, "")},
				[]string{"another store"},
			},
			"prefixes swapped": {
				[]func(*bridge.Options){withPrefixes(t, "q", "pq")}, []string{"prefixes"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				wantRefused(t, e.StartBridge(c.changes...), c.words...)
			})
		}

		// The first bridge has all subjects to itself.
		pushNumbers(t, e, "pq.jobs.push", n)
		wantLen(t, e, "pq", "jobs", n)

		e.Bridge.WaitReady()
	})
}

// Bridges that are unrelated, or that belong together, share a NATS.
func TestCompatibleBridges(t *testing.T) {
	other := memkv.New(memkv.Options{})
	defer func() { _ = other.Close() }()
	e := start(t, testenv.Options{})

	var started []*testenv.Bridge // together, because each may wait for one that is frozen
	for _, changes := range [][]func(*bridge.Options){
		{},
		{withPrefixes(t, "a.pq", "a.q"), on(other, "")},
		{withPrefixes(t, "pqx", "qx"), on(other, ""), inGroup("x")},
		{withPrefixes(t, "b", "c")}, // the same store under other names
		{},
	} {
		started = append(started, e.StartBridge(changes...))
	}

	for _, b := range started {
		b.WaitReady()
	}
	wantMetric(t, e.Bridge, "pq_bridges", 3) // the first, and the two without changes
}

// A killed bridge does not keep the next one, of another group, from serving.
func TestGhostDoesNotConflict(t *testing.T) {
	e := start(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	e.Conn = e.Connect()
	w := newWire(t, e)
	killed := newBridge(e, w.use)
	w.kill()
	e.StartBridge(inGroup("pq2")).WaitReady()
	_ = killed.Stop() // its connection was never closed in an orderly way
}

// cluster is two NATS servers that do not know each other yet.
func cluster(t *testing.T) (one, two *server.Server, join func()) {
	t.Helper()
	const config = "cluster { name: joined, listen: \"127.0.0.1:-1\", routes: [ %s ] }"
	one, two = natsServer(t, fmt.Sprintf(config, "")), natsServer(t, fmt.Sprintf(config, ""))

	return one, two, func() {
		routes := fmt.Sprintf(`"nats://%s", "nats://%s"`, one.ClusterAddr(), two.ClusterAddr())
		natsServer(t, fmt.Sprintf(config, routes))
	}
}

// If two networks are joined in which bridges of two stores serve the same subjects, the younger
// ones say so and serve nothing until the older ones are gone. No request is lost meanwhile.
func TestNetworksAreJoined(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]string{
		"another store":           "pq",
		"another store and group": "pq2",
	} {
		t.Run(name, func(t *testing.T) {
			one, two, join := cluster(t)
			other := memkv.New(memkv.Options{})
			t.Cleanup(func() { _ = other.Close() })
			e := testenv.New(t, testenv.Options{Stopped: true})
			at := func(s *server.Server) func(*bridge.Options) {
				return func(o *bridge.Options) { o.NATSURL = s.ClientURL() }
			}
			older := []*testenv.Bridge{e.StartBridge(at(one), on(e.DB, "/older"))}
			older[0].WaitReady()

			younger := []*testenv.Bridge{
				e.StartBridge(at(two), on(other, "/younger"), inGroup(group)),
				e.StartBridge(at(two), on(other, "/younger"), inGroup(group)),
			}

			for _, b := range younger {
				b.WaitReady()
			}

			older = append(older, e.StartBridge(at(one), on(e.DB, "/older")))
			older[1].WaitReady()

			nc, err := nats.Connect(two.ClientURL(), nats.Timeout(testenv.Patience))
			must(t, err)
			t.Cleanup(nc.Close)
			e.Conn = nc
			const kept = 3

			for range kept {
				push(t, e, "pq.jobs.push", nil, "younger")
			}

			join()
			for _, b := range younger {
				testenv.Eventually(t, func() error { // with no request lost meanwhile
					push(t, e, "pq.load.push", nil, "x")
					ready, _, err := b.Ready()

					if err == nil && ready {
						err = errors.New("still ready")
					}

					return err
				})

				notReady(t, b, "/older")
				wantMetric(t, b, "pq_serving", 0)
			}

			for _, b := range older {
				b.WaitReady()
			}

			const n = 20
			testenv.Eventually(t, func() error { // until the servers know who is where
				reply, err := nc.Request("pq.jobs.len", nil, testenv.Patience)
				if err != nil || string(reply.Data) != `{"queue":"jobs","len":0}` {
					return fmt.Errorf("%v, %w", reply, err)
				}

				return nil
			})

			pushNumbers(t, e, "pq.jobs.push", n)
			for i := range n {
				same(t, "popped", request(t, nc, "pq.jobs.pop.min", ""), fmt.Sprint(i))
			}

			// The younger ones still have what they had.
			for _, b := range older {
				b.MustStop()
			}

			for _, b := range younger {
				b.WaitReady()
			}
			wantLen(t, e, "pq", "jobs", kept)
			wantMetric(t, younger[0], "pq_bridges", 2)
		})
	}
}

// Of many bridges that start at once, each with its own store, one serves in the end. The others
// say why they do not, or end with an error that does.
func TestManyStoresStartAtOnce(t *testing.T) {
	e := start(t, testenv.Options{Stopped: true})
	const n = 5

	var all []*testenv.Bridge
	for i := range n {
		db := memkv.New(memkv.Options{})
		t.Cleanup(func() { _ = db.Close() })
		all = append(all, e.StartBridge(on(db, fmt.Sprint("/data/", i))))
	}

	e.NATS.Start() // all of them wait for it
	testenv.Eventually(t, func() error {
		serving, silent := 0, 0
		for _, b := range all {
			select {
			case <-b.Done():
				continue
			default:
			}

			ready, reasons, err := b.Ready()
			switch {
			case ready:
				serving++
			case err != nil || !strings.Contains(fmt.Sprint(reasons), "serves the same subjects"):
				silent++
			}
		}

		if serving != 1 || silent > 0 {
			return fmt.Errorf("%d serve, and %d do not say why they do not", serving, silent)
		}

		return nil
	})

	for _, b := range all {
		select {
		case <-b.Done():
			wantRefused(t, b, "another store", "/data/")
		default:
		}
	}
}

// While the store is away, a starting bridge is connected to NATS but takes no requests, so that
// clients hear at once that nobody is there. Once the store answers, it serves.
func TestStoreAwayAtTheStart(t *testing.T) {
	var faults *faultkv.DB
	e := start(t, testenv.Options{Stopped: true, Wrap: func(db kv.Database) kv.Database {
		faults = faultkv.New(db, faultkv.Options{})
		faults.SetOutage(true)
		return faults
	}})

	e.NATS.Start()
	e.Conn = e.Connect()
	b := e.StartBridge()
	notReady(t, b, "store")

	wantMetric(t, b, "pq_nats_connected", 1)

	_, err := e.Conn.Request("pq.jobs.push", nil, testenv.Patience)
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("push: %v, want %v", err, nats.ErrNoResponders)
	}

	faults.SetOutage(false)
	b.WaitReady()
	push(t, e, "pq.jobs.push", nil, "x")
}
