package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// stopAt is an output that calls stop when words are written to it.
type stopAt struct {
	harness.Transcript
	words string
	stop  func()
}

func (s *stopAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.words) {
		s.stop()
	}
	return s.Transcript.Write(p)
}

// runHere runs pqbridge in this process, and fails the test if goroutines are left when it has
// returned. The variables are set in addition to the ones a service needs to start.
func runHere(
	t *testing.T, ctx context.Context, stderr io.Writer, args []string, variables map[string]string,
) error {
	t.Helper()
	before := goleak.IgnoreCurrent()
	setenv(t, map[string]string{"PQ_DATA_DIR": t.TempDir(), "PQ_HTTP_ADDR": "127.0.0.1:0"})

	if len(args) > 0 {
		t.Setenv("PQ_DEV_NATS_PORT", "0")
	}

	setenv(t, variables)
	// A start that should fail may succeed.
	ctx, cancel := context.WithTimeout(ctx, testenv.Patience)
	defer cancel()
	err := run(ctx, args, stderr, stderr)

	testenv.Eventually(t, func() error { return goleak.Find(before) })

	return err
}

// If a step of the start fails, everything that the steps before it had started is stopped.
func TestFailedStartLeavesNoGoroutine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	_, takenPort, err := net.SplitHostPort(taken.Addr().String())
	must(t, err)

	noFolder := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(noFolder, nil, 0o600))
	noStreams := t.TempDir()
	db, err := pebblekv.Open(noStreams, pebblekv.Options{})
	must(t, err)
	must(t, db.Close())
	must(t, os.WriteFile(filepath.Join(noStreams, "jetstream"), nil, 0o600))

	served := testenv.New(t, testenv.Options{}).NATS.URL() // by a bridge on a store of its own
	dev := []string{"-dev"}

	for name, test := range map[string]struct {
		args      []string
		variables map[string]string
		want      string
	}{
		"flag":          {[]string{"-devel"}, nil, "-devel"},
		"configuration": {dev, map[string]string{"PQ_LANES": "-1"}, "PQ_LANES"},
		"NATS port in use": {
			dev,
			map[string]string{"PQ_DEV_NATS_PORT": takenPort},
			takenPort + ": bind: address already in use",
		},
		"JetStream": {
			dev,
			map[string]string{"PQ_DATA_DIR": noStreams},
			"with its streams in " + noStreams + "/jetstream: Can't start JetStream: storage " +
				"directory is not a directory; move that folder away",
		},
		"store": {dev, map[string]string{"PQ_DATA_DIR": noFolder}, noFolder},
		"HTTP port in use": {
			dev,
			map[string]string{"PQ_HTTP_ADDR": taken.Addr().String()},
			fmt.Sprintf("PQ_HTTP_ADDR is %[1]v: want an address to listen on: listen tcp %[1]v: "+
				"bind: address already in use", taken.Addr()),
		},
		"NATS client": {
			nil,
			map[string]string{"PQ_NATS_URL": "nats://127.0.0.1:1,ws://127.0.0.1:1"},
			"websocket",
		},
		"subjects taken": {nil, map[string]string{"PQ_NATS_URL": served}, "another store"},
		"health of nobody": {
			[]string{"-healthcheck"},
			map[string]string{"PQ_HTTP_ADDR": "127.0.0.1:1"},
			"not ready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log harness.Transcript
			err := runHere(t, t.Context(), &log, test.args, test.variables)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v: want one with %q\n%s", err, test.want, log.String())
			}
		})
	}
}

// A health check of an address that accepts and never answers leaves no goroutine behind.
func TestSilentHealthLeavesNoGoroutine(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()

	err = runHere(t, ctx, io.Discard, []string{"-healthcheck"},
		map[string]string{"PQ_HTTP_ADDR": silent.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("the health of a silent address: %v, want that it is not ready", err)
	}
}

// A signal before any step of the start leaves no goroutine behind.
func TestSignalDuringStartLeavesNoGoroutine(t *testing.T) {
	for _, words := range []string{
		"", "nats-server: Starting nats-server", "nats-server: Server is ready", "pqbridge starts",
		"connected to NATS",
		"a new store", "taking requests", "Ready. NATS is at",
	} {
		t.Run(words, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			log := &stopAt{words: words, stop: func() { stop(signalErrors[syscall.SIGTERM]) }}

			if words == "" {
				log.stop()
			}

			t.Setenv("PQ_LOG_LEVEL", "debug")
			err := runHere(t, ctx, log, []string{"-dev"}, nil)
			if err != nil && !testenv.Unconfirmed.MatchString(err.Error()) {
				t.Errorf("%v\n%s", err, log.String())
			}
			if ctx.Err() == nil || !strings.Contains(log.String(), "pqbridge has ended") {
				t.Errorf("the log has no %q, or no end:\n%s", words, log.String())
			}
		})
	}
}
