package proof_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// serviceVariable makes the test binary run a bridge, or a NATS server, in a process of its own,
// which can be killed. It holds a serviceConfig.
const serviceVariable = "PROOF_SERVICE"

type serviceConfig struct {
	Serve          string // what a NATS server listens on; "" for a bridge
	StoreDir       string // of its JetStream; "" for none
	Strangers      bool   // it keeps bridges from talking to each other
	NATS           string
	Leaf           string // where the JetStream face connects to; "" for none
	Folder         string // of the embedded store
	MinFree        int64  // bytes of its disk that the embedded store keeps free; see pebblekv
	ClusterFile    string // of FoundationDB
	RequestTimeout time.Duration
	Clock          clock
	Limits         limits
}

// clock is a clock that is wrong.
type clock struct {
	Ahead  time.Duration
	Strobe time.Duration // after which it is as much behind, or ahead again; 0 for never
}

func (c clock) now() time.Time {
	now := time.Now()
	if c.Strobe > 0 && now.UnixNano()/int64(c.Strobe)%2 == 0 {
		return now.Add(-c.Ahead)
	}
	return now.Add(c.Ahead)
}

// serve runs until SIGTERM, or until the test is gone.
func serve() (err error) {
	var c serviceConfig
	if err := json.Unmarshal([]byte(os.Getenv(serviceVariable)), &c); err != nil {
		return err
	}

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	if c.Serve != "" {
		return serveNATS(ctx, &c)
	}

	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := c.open(logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	o := bridgeOptions(c.NATS, c.Leaf, db, c.RequestTimeout, c.Clock, c.Limits)
	o.Logger, o.HTTPAddr = logger, "127.0.0.1:0"
	b, err := bridge.New(o)
	if err != nil {
		return err
	}

	fmt.Println(b.Addr())
	return b.Run(ctx)
}

// serveNATS runs a NATS server.
func serveNATS(ctx context.Context, c *serviceConfig) error {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(c.Serve, "nats://"))
	if err != nil {
		return err
	}

	o := &server.Options{
		Host:      host,
		NoSigs:    true,
		NoLog:     true,
		JetStream: c.StoreDir != "",
		StoreDir:  c.StoreDir,
	}

	testenv.PatientLogins(o)
	if c.Strangers {
		keepApart(o)
	}

	if o.Port, err = strconv.Atoi(port); err != nil {
		return err
	}

	s, err := server.NewServer(o)
	if err != nil {
		return err
	}

	s.Start()
	if !s.ReadyForConnections(patience) {
		return errors.New("the NATS server did not start")
	}

	fmt.Println(c.Serve)
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()

	return nil
}

func (c *serviceConfig) open(logger *slog.Logger) (kv.Database, error) {
	if c.ClusterFile != "" {
		timeout := max(c.RequestTimeout, fdbkv.DefaultTransactionTimeout)
		return fdbkv.Open(fdbkv.Options{ClusterFile: c.ClusterFile, TransactionTimeout: timeout})
	}
	return pebblekv.Open(c.Folder, pebblekv.Options{Logger: logger, MinFreeSpace: c.MinFree})
}

// bridgeOptions returns the options of all bridges.
func bridgeOptions(
	url, leaf string, db kv.Database, timeout time.Duration, c clock, l limits,
) bridge.Options {
	return bridge.Options{
		NATSURL: url,
		NATSOptions: []nats.Option{
			nats.MaxReconnects(-1),
			nats.ReconnectWait(10 * time.Millisecond),
			nats.ReconnectJitter(0, 0),
		},
		DB:        db,
		Keyspace:  keyspace(),
		Now:       c.now,
		Grammar:   bridgeGrammar(),
		JetStream: bridge.JetStreamOptions{LeafURL: leaf},
		Limits: dispatch.Limits{
			LeaseRoom:      l.LeaseRoom,
			MaxBatchBytes:  l.MaxBatchBytes,
			Lanes:          l.Lanes,
			RequestTimeout: timeout,
		},
		Version: "0.0.1",
	}
}

// sure returns what cannot fail.
func sure[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func bridgeGrammar() subjects.Grammar {
	return sure(subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix))
}

func keyspace() *fdbpq.Keyspace {
	priority, fifo := subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix
	return sure(fdbpq.NewKeyspace(priority, fifo, fdbpq.RawValues))
}

// service is a bridge, or a NATS server, in a process of its own.
type service struct {
	t      *testing.T
	config serviceConfig
	clock  func() clock // of the next process
	// program is the pqbridge that it runs; "" for the bridge in this test binary.
	program string
	cmd     *exec.Cmd // nil if it does not run
	stdin   io.Closer
	stderr  strings.Builder
	http    string // address
}

func newService(t *testing.T, c serviceConfig, clock func() clock) *service {
	s := &service{t: t, config: c, clock: clock}
	s.begin()
	return s
}

// begin starts the first process, and has the last one end with the test.
func (s *service) begin() {
	s.t.Helper()
	s.t.Cleanup(func() {
		switch {
		case s.cmd == nil:
		case s.t.Failed():
			s.dump()
		default:
			s.kill()
		}
	})
	s.start()
}

// dump ends the process, and shows what it was doing.
func (s *service) dump() {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // it may be paused
	_ = s.cmd.Wait()
	s.cmd = nil
	_ = s.stdin.Close()
	output := harness.Shorten("service", s.stderr.String()) // the goroutines are a thousand lines
	s.t.Logf("output of the service, in the end with its goroutines:\n%s", output)
}

// start returns when the process has opened its store.
func (s *service) start() {
	s.t.Helper()
	s.stderr.Reset()
	if s.program != "" {
		s.startProgram()
		return
	}

	s.config.Clock = s.clock()
	config, err := json.Marshal(s.config)
	must(s.t, err)

	s.cmd = harness.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), serviceVariable+"="+string(config))
	s.cmd.Stderr = &s.stderr
	stdout, err := s.cmd.StdoutPipe()
	must(s.t, err)

	s.stdin, err = s.cmd.StdinPipe()
	must(s.t, err)
	must(s.t, s.cmd.Start())

	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		err := s.cmd.Wait()
		s.cmd = nil
		s.t.Fatalf("the service ended: %v\n%s", err, harness.Shorten("service", s.stderr.String()))
	}

	s.http = lines.Text()
}

// kill is kill -9.
func (s *service) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Error(err)
	}

	var killed *exec.ExitError
	if err := s.cmd.Wait(); !errors.As(err, &killed) {
		s.t.Errorf("after kill -9: %v", err)
	}

	s.report()
}

// pause stops the process, which the returned function lets go on.
func (s *service) pause() (resume func()) {
	s.t.Helper()
	must(s.t, s.cmd.Process.Signal(syscall.SIGSTOP))
	return func() {
		resumed.Store(time.Now().UnixNano())
		must(s.t, s.cmd.Process.Signal(syscall.SIGCONT))
	}
}

// resumed is when a process that had been paused went on, in nanoseconds of Unix time.
var resumed atomic.Int64

// mayEndEarly reports whether a bridge that had stood still may have read a request, whose wait it
// then ends early because its client may have given up.
func mayEndEarly(called, returned time.Time) bool {
	const untilHeard = 5 * time.Second // a bridge hears itself again in half of that
	at := time.Unix(0, resumed.Load())
	return returned.After(at) && called.Before(at.Add(untilHeard))
}

// stop shuts the process down in an orderly way. It may end with one of the problems that are
// excused.
func (s *service) stop(excused ...string) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}

	// On a busy machine NATS may not answer within the time that a shutdown waits for it.
	excused = append(excused, "did not confirm")
	said := func(problem string) bool { return strings.Contains(s.stderr.String(), problem) }
	if err := s.cmd.Wait(); err != nil && !slices.ContainsFunc(excused, said) {
		s.t.Errorf("service after SIGTERM: %v", err)
	}

	s.report()
}

// report shows the output of the process. A data race in it is a failure.
func (s *service) report() {
	s.cmd = nil
	_ = s.stdin.Close()

	text := s.stderr.String()
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		s.t.Errorf("output of the service:\n%s", harness.Shorten("service", text))
	} else if text != "" {
		s.t.Logf("output of the service:\n%.2000s", text)
	}
}
