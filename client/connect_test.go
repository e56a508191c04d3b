package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// What waiting cannot help ends Connect at once: a login or a certificate that is refused, on
// either side, and a bad URL.
func TestConnectEnds(t *testing.T) {
	for _, login := range testenv.Logins(t) {
		e := testenv.New(t, testenv.Options{
			Stopped: true,
			NATS:    testenv.ServerOptions(t, login.Config),
		})
		e.NATS.Start()
		var trust []nats.Option
		if login.CertFile != "" { // otherwise it does not trust the server
			trust = append(trust, nats.RootCAs(login.CAFile))
		}

		nc, err := client.Connect(t.Context(), e.NATS.URL(), trust...)

		if nc != nil || err == nil {
			t.Errorf("%s: Connect returned %v", login.Name, err)
		}
		if login.CAFile == "" && !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: Connect returned %v, want %v", login.Name, err, nats.ErrAuthorization)
		}
	}

	if _, err := client.Connect(t.Context(), "nats://a b"); err == nil ||
		!strings.Contains(err.Error(), "parse") {
		t.Errorf("of a bad URL Connect returned %v", err)
	}
}

// lateServer is a NATS server that cannot be reached at first.
type lateServer struct {
	*testenv.Server
	failures []error // of the first attempts
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *lateServer) InProcessConn() (net.Conn, error) {
	if len(s.failures) == 0 {
		return s.Server.InProcessConn()
	}
	err := s.failures[0]
	s.failures = s.failures[1:]
	return nil, err
}

// Connect waits for a server, whichever way it is missing.
func TestConnectWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		server := &lateServer{testenv.New(t, testenv.Options{}).NATS, []error{
			&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
			&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nats"}},
			&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
			&net.OpError{Op: "read", Err: syscall.ECONNRESET},
			io.EOF,
			nats.ErrTimeout,
		}}

		nc, err := client.Connect(t.Context(), "", nats.InProcessServer(server))
		ok(t, err)

		nc.Close()
	})
}

// A Connect whose context ends says what it waited for.
func TestConnectUntilItsContextEnds(t *testing.T) {
	e := testenv.New(t, testenv.Options{Stopped: true})
	over, stop := context.WithCancel(t.Context())
	stop()

	_, err := client.Connect(over, e.NATS.URL())

	if !errors.Is(err, context.Canceled) || !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("Connect returned %v", err)
	}
}
