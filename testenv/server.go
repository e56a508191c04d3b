package testenv

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Server is a NATS server in this process. It keeps its address when it is
// started again.
type Server struct {
	t       testing.TB
	options server.Options
	running atomic.Pointer[server.Server] // nil when stopped
}

func newServer(t testing.TB, change func(*server.Options)) *Server {
	s := &Server{t: t, options: server.Options{
		Host: "127.0.0.1", Port: harness.Port(t), NoSigs: true, NoLog: true,
	}}
	s.options.DontListen = isBubble(t)
	if change != nil {
		change(&s.options)
	}

	PatientLogins(&s.options)
	t.Cleanup(s.Stop)
	return s
}

// PatientLogins gives clients and leaf nodes as long as they need to log in: a busy machine can
// take longer than the server's default of two seconds.
func PatientLogins(o *server.Options) {
	o.AuthTimeout = Patience.Seconds()
	o.LeafNode.AuthTimeout = Patience.Seconds()
	o.TLSTimeout, o.LeafNode.TLSTimeout = Patience.Seconds(), Patience.Seconds()
}

// URL returns the server's address, even while it is stopped.
func (s *Server) URL() string {
	return "nats://" + net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// connectOptions are for clients of this server, which soon notice that it is back.
func (s *Server) connectOptions() []nats.Option {
	o := []nats.Option{
		nats.Timeout(Patience),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(10 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
	}
	if s.options.DontListen {
		o = append(o, nats.InProcessServer(s))
	}
	return o
}

// InProcessConn implements nats.InProcessConnProvider, whichever server runs.
func (s *Server) InProcessConn() (net.Conn, error) {
	if running := s.running.Load(); running != nil {
		return running.InProcessConn()
	}
	return nil, errors.New("the NATS server is stopped")
}

// Start starts the server.
func (s *Server) Start() {
	s.t.Helper()
	options := s.options // the server fills in its copy
	running, err := server.NewServer(&options)
	if err != nil {
		s.t.Fatalf("testenv: NATS server: %v", err)
	}

	s.running.Store(running)
	running.Start()
	if !running.ReadyForConnections(Patience) {
		s.t.Fatalf("testenv: the NATS server did not start")
	}
}

// Stop stops the server, if it runs, and waits until it is gone.
func (s *Server) Stop() {
	if running := s.running.Swap(nil); running != nil {
		running.Shutdown()
		running.WaitForShutdown()

		// A child process that another test is just starting has the listener until it runs its
		// program. Until then, nobody could listen on the port again.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
}

// Restart is Stop and Start.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

// Reload makes a server that runs take over options that were changed.
func (s *Server) Reload() {
	s.t.Helper()
	options := s.options
	if err := s.running.Load().ReloadOptions(&options); err != nil {
		s.t.Fatalf("testenv: NATS server: %v", err)
	}
}

// Change changes the options for the next Start or Reload.
func (s *Server) Change(change func(*server.Options)) { change(&s.options) }

// Knows waits until the server knows that somebody, on any server of its cluster, is subscribed to
// a subject, or that nobody is.
func (s *Server) Knows(subject string, subscribed bool) {
	s.t.Helper()
	Eventually(s.t, func() error {
		if s.running.Load().GlobalAccount().Interest(subject) > 0 != subscribed {
			return fmt.Errorf("subscribed to %s: want %t", subject, subscribed)
		}
		return nil
	})
}

// logger returns a logger that writes warnings and errors to the test's log.
func logger(t testing.TB) *slog.Logger {
	return harness.Logger(t, slog.LevelWarn)
}
