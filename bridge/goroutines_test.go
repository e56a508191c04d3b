package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// waitedFor are in the names of functions whose goroutines Run waits for: methods of the bridge and
// of its handler.
var waitedFor = []string{"/pqbridge/bridge.(", "/pqbridge/bridge/requests.("}

// endSoon are in the names of functions whose goroutines nobody waits for: they have nothing more
// to do.
var endSoon = []string{
	"/pqbridge/bridge.waitFor", // what it waits for ends soon, and its caller has gone on
	"nats%2ego.(",              // Close does not wait for the loops of a connection
	"net/http.(*conn)",         // Close does not wait for what answers a request
	"net/http.(*Server)",       // Close does not wait for what notes that a connection has ended
}

// goroutines returns the stacks, by id, of the goroutines whose first function has one of these
// parts in its name.
func goroutines(parts ...string) map[string]string {
	buffer := make([]byte, 1<<20)
	n := runtime.Stack(buffer, true)
	for n == len(buffer) {
		buffer = make([]byte, 2*len(buffer))
		n = runtime.Stack(buffer, true)
	}

	// Above the last line, which says who started the goroutine, stands its first function. That is
	// the one inside of WaitGroup.Go.
	stacks := map[string]string{}
	for stack := range strings.SplitSeq(string(buffer[:n]), "\n\n") {
		functions, _, _ := strings.Cut(stack, "\nsync.(*WaitGroup).Go")
		functions, _, _ = strings.Cut(functions, "\ncreated by ")
		lines := strings.Split(functions, "\n")
		first := lines[max(len(lines)-2, 0)] // its file stands below it
		has := func(part string) bool { return strings.Contains(first, part) }
		if slices.ContainsFunc(parts, has) {
			id, _, _ := strings.Cut(stack, " [")
			stacks[id] = stack
		}
	}
	return stacks
}

// noneSince returns an error if there is a goroutine with one of the parts that was not there
// before.
func noneSince(before map[string]string, parts ...string) error {
	for id, stack := range goroutines(parts...) {
		if _, known := before[id]; !known {
			return errors.New("a goroutine is left behind:\n" + stack)
		}
	}
	return nil
}

// slow makes everything that could time out during a shutdown take longer than any
// test.
func slow(o *bridge.Options) {
	o.ShutdownTimeout = time.Hour
	o.NATSOptions = append(o.NATSOptions, nats.Timeout(time.Hour))
}

// wantOrderly stops a bridge, whose Run returns no error.
func wantOrderly(t *testing.T, b *testenv.Bridge) {
	t.Helper()
	if err := stopBridge(t, b); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// wantFailure waits until Run ends by itself, with an error that has these words.
func wantFailure(t *testing.T, b *testenv.Bridge, words string) {
	t.Helper()
	<-b.Done()
	if err := b.Stop(); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("Run: %v, want an error with %q", err, words)
	}
}

// Run leaves no goroutine behind, however it ends, and does not wait for timeouts.
func TestRunLeavesNoGoroutine(t *testing.T) {
	for name, run := range map[string]func(*testing.T, *testenv.Env){
		"orderly": func(t *testing.T, e *testenv.Env) {
			b := newBridge(e, slow)
			e.Conn = e.Connect()
			push(t, e, "pq.jobs.push", nil, "x")
			e.Conn.Close()
			wantOrderly(t, b)
		},
		"at once": func(t *testing.T, e *testenv.Env) { wantOrderly(t, e.StartBridge(slow)) },
		"NATS is away from the start": func(t *testing.T, e *testenv.Env) {
			e.NATS.Stop()
			b := e.StartBridge(slow)
			notReady(t, b, "nats")
			wantOrderly(t, b)
		},
		"NATS goes away": func(t *testing.T, e *testenv.Env) {
			b := newBridge(e, slow)
			e.NATS.Stop()
			wantMetric(t, b, "pq_nats_connected", 0) // before that /readyz may wait for NATS

			notReady(t, b, "nats")
			wantOrderly(t, b)
		},
		"NATS freezes with peers": func(t *testing.T, e *testenv.Env) {
			w := newWire(t, e)
			behind := func(o *bridge.Options) { w.use(o); o.ShutdownTimeout = time.Second }
			bridges := []*testenv.Bridge{e.StartBridge(slow, behind), e.StartBridge(slow, behind)}

			for _, b := range bridges {
				b.WaitReady()
			}

			w.freeze()
			for _, b := range bridges {
				_ = stopBridge(t, b) // the last replies are not confirmed
			}

			w.kill()
		},
		"an option of NATS fails": func(t *testing.T, e *testenv.Env) {
			bad := func(*nats.Options) error { return errors.New("bad option") }
			wantFailure(t, e.StartBridge(slow, func(o *bridge.Options) {
				o.NATSOptions = append(o.NATSOptions, bad)
			}), "bad option")
		},
		"the HTTP listener fails": func(t *testing.T, e *testenv.Env) {
			b := newBridge(e, slow)
			must(t, b.Close())
			wantFailure(t, b, "HTTP")
		},
		"HTTP requests are being answered": func(t *testing.T, e *testenv.Env) {
			var broken atomic.Bool
			reading := make(chan struct{}, 64) // an element for each read that has begun since

			u := &hooked{Database: e.DB, read: func(ctx context.Context) error {
				if !broken.Load() {
					return nil
				}

				reading <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}}

			b := newBridge(e, slow, func(o *bridge.Options) { o.DB, o.HTTPTimeout = u, time.Hour })
			broken.Store(true)

			for _, page := range []string{"/readyz", "/metrics"} {
				over := make(chan struct{})
				go func() {
					defer close(over)
					_, _, _ = b.Get(page) // is cut, unless its read is cancelled sooner
				}()

				<-reading
				defer func() { <-over }()
			}

			wantOrderly(t, b)
		},
		"the store never answers": func(t *testing.T, e *testenv.Env) {
			s := stuck{Database: e.DB, entered: make(chan struct{}), free: make(chan struct{})}
			b := e.StartBridge(slow, func(o *bridge.Options) { o.DB = s })
			<-s.entered
			wantOrderly(t, b)
		},
		"the store is another one": func(t *testing.T, e *testenv.Env) {
			b := e.StartBridge(slow)
			b.WaitReady()
			wantOrderly(t, b)
			wantFailure(t, e.StartBridge(slow, func(o *bridge.Options) {
				o.Keyspace = newKeyspace(t, "q", "pq")
			}), "root prefixes")
		},
		"the subjects are taken": func(t *testing.T, e *testenv.Env) {
			other := memkv.New(memkv.Options{})
			t.Cleanup(func() { _ = other.Close() })
			b := newBridge(e, slow)

			wantFailure(t, e.StartBridge(slow, on(other, "")), "serves the same subjects")

			wantOrderly(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{Stopped: true})
			e.NATS.Start()
			before := goroutines(slices.Concat(waitedFor, endSoon)...)

			run(t, e)

			must(t, noneSince(before, waitedFor...))
			testenv.Eventually(t, func() error { return noneSince(before, endSoon...) })
		})
	}
}

// A bridge that is not run keeps its address until it is closed. Another one for the same address
// says so.
func TestCloseWithoutRun(t *testing.T) {
	e := testenv.New(t, testenv.Options{Stopped: true})
	b, err := bridge.New(bridge.Options{
		DB:       e.DB,
		Keyspace: e.Keyspace,
		Grammar:  e.Grammar,
		HTTPAddr: fmt.Sprint("127.0.0.1:", harness.Port(t)),
	})
	must(t, err)

	address := b.Addr()
	_, err = bridge.New(bridge.Options{
		DB:       e.DB,
		Keyspace: e.Keyspace,
		Grammar:  e.Grammar,
		HTTPAddr: address,
	})
	if err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("a second one: %v, want an error with %s", err, address)
	}

	for range 2 {
		must(t, b.Close())
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}

	_ = listener.Close()
}
