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

// goroutines returns the stacks of all goroutines by id.
func goroutines() map[string]string {
	buffer := make([]byte, 1<<20)
	n := runtime.Stack(buffer, true)

	for n == len(buffer) {
		buffer = make([]byte, 2*len(buffer))
		n = runtime.Stack(buffer, true)
	}

	stacks := map[string]string{}
	for stack := range strings.SplitSeq(string(buffer[:n]), "\n\n") {
		id, _, _ := strings.Cut(stack, " [")
		stacks[id] = stack
	}

	return stacks
}

// outermost returns the function that a goroutine was started with.
func outermost(stack string) (function string) {
	for line := range strings.Lines(stack) {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "created by ") &&
			!strings.HasPrefix(line, "sync.(*WaitGroup).Go") {
			function = line
		}
	}
	return function
}

// onlyKnown returns an error if other goroutines were started with one of the functions.
func onlyKnown(known map[string]string, functions ...string) error {
	for id, stack := range goroutines() {
		if _, ok := known[id]; ok {
			continue
		}

		started := outermost(stack)
		ours := func(f string) bool { return strings.Contains(started, f) }
		if slices.ContainsFunc(functions, ours) {
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

// Run leaves no goroutine behind, however it ends, and does not wait for timeouts.
func TestRunLeavesNoGoroutine(t *testing.T) {
	ends := func(t *testing.T, b *testenv.Bridge) {
		t.Helper()
		if err := stopBridge(t, b); err != nil {
			t.Errorf("Run: %v", err)
		}
	}

	fails := func(t *testing.T, b *testenv.Bridge, words string) {
		t.Helper()
		<-b.Done()
		if err := b.Stop(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("Run: %v, want an error with %q", err, words)
		}
	}

	for name, run := range map[string]func(*testing.T, *testenv.Env){
		"orderly": func(t *testing.T, e *testenv.Env) {
			b := newBridge(e, slow)
			e.Conn = e.Connect()
			push(t, e, "pq.jobs.push", nil, "x")
			e.Conn.Close()
			ends(t, b)
		},
		"at once": func(t *testing.T, e *testenv.Env) { ends(t, e.StartBridge(slow)) },
		"NATS is away from the start": func(t *testing.T, e *testenv.Env) {
			e.NATS.Stop()
			b := e.StartBridge(slow)
			notReady(t, b, "nats")
			ends(t, b)
		},
		"NATS goes away": func(t *testing.T, e *testenv.Env) {
			b := newBridge(e, slow)
			e.NATS.Stop()
			wantMetric(t, b, "pq_nats_connected", 0) // before that /readyz may wait for NATS

			notReady(t, b, "nats")
			ends(t, b)
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
			fails(t, e.StartBridge(slow, func(o *bridge.Options) {
				o.NATSOptions = append(o.NATSOptions, bad)
			}), "bad option")
		},
		"the HTTP listener fails": func(t *testing.T, e *testenv.Env) {
			b := newBridge(e, slow)
			must(t, b.Close())
			fails(t, b, "HTTP")
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

			ends(t, b)
		},
		"the store never answers": func(t *testing.T, e *testenv.Env) {
			s := stuck{Database: e.DB, entered: make(chan struct{}), free: make(chan struct{})}
			b := e.StartBridge(slow, func(o *bridge.Options) { o.DB = s })
			<-s.entered
			ends(t, b)
		},
		"the store is another one": func(t *testing.T, e *testenv.Env) {
			b := e.StartBridge(slow)
			b.WaitReady()
			ends(t, b)
			fails(t, e.StartBridge(slow, func(o *bridge.Options) {
				o.Keyspace = newKeyspace(t, "q", "pq")
			}), "root prefixes")
		},
		"the subjects are taken": func(t *testing.T, e *testenv.Env) {
			other := memkv.New(memkv.Options{})
			t.Cleanup(func() { _ = other.Close() })
			b := newBridge(e, slow)

			fails(t, e.StartBridge(slow, on(other, "")), "serves the same subjects")

			ends(t, b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{Stopped: true})
			e.NATS.Start()
			known := goroutines()
			run(t, e)
			must(t, onlyKnown(known, "/pqbridge/bridge.(", "/pqbridge/bridge/requests.("))

			// Libraries, and waitFor, do not wait for their goroutines, which have nothing more to
			// do.
			testenv.Eventually(t, func() error {
				return onlyKnown(known, "/pqbridge/bridge.", "/pqbridge/bridge/requests.",
					"nats%2ego.(", "net/http.(*conn)", "net/http.(*Server)")
			})
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
