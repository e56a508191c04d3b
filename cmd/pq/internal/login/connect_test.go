package login

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

// Errors describe the server as it is. See TestServersThatRefuse of pq as well.
func TestWhyNotConnected(t *testing.T) {
	const none = "no server answers there"
	c := &Connection{Timeout: time.Second}

	for _, m := range []struct {
		err   error
		words string
	}{
		{nats.ErrNoServers, none + ": start one with pqbridge -dev, or name another with --server"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "nothing answers there within 1s"},
		{
			&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded},
			"it accepts the connection, but does not speak as a NATS server within 1s",
		},
		{
			&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nowhere"}},
			"lookup nowhere: no such host: name another with --server",
		},
		{nats.ErrNoInfoReceived, "it is not a NATS server"},
		{fmt.Errorf("%w: expired", nats.ErrAuthExpired), "look at the login"},
		{nats.ErrAuthRevoked, "look at the login"},
		{nats.ErrMaxConnectionsExceeded, "maximum connections exceeded"},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(116)}, "--tlscert, --tlskey"},
	} {
		text := c.whyNot(m.err).Error()
		if !strings.Contains(text, m.words) ||
			strings.Contains(text, none) != (m.err == nats.ErrNoServers) {
			t.Errorf("%v: %s, want words %q", m.err, text, m.words)
		}
	}
}

// A connection to a server that answers nothing any more, because its machine is gone, ends within
// a minute. Here the pings come faster.
func TestFrozenServer(t *testing.T) {
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	c := &Connection{Server: freezing(t, e.NATS.URL(), t.Context().Done()), Timeout: time.Minute}
	options, err := c.Options()
	if err != nil {
		t.Fatal(err)
	}
	nc, err := c.ConnectAny(options)
	if err != nil {
		t.Fatal(err)
	}
	most := nc.Opts.PingInterval * time.Duration(nc.Opts.MaxPingsOut+1)
	nc.Close()
	if most > time.Minute {
		t.Errorf("a frozen server is noticed after %v, want a minute at most", most)
	}

	frozen, ended := make(chan struct{}), make(chan error, 1)
	c.Server = freezing(t, e.NATS.URL(), frozen)
	nc, err = c.ConnectAny(append(options, nats.PingInterval(10*time.Millisecond),
		nats.NoReconnect(), nats.ClosedHandler(func(nc *nats.Conn) {
			ended <- nc.LastError()
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	close(frozen)

	select {
	case err := <-ended:
		if !errors.Is(err, nats.ErrStaleConnection) {
			t.Errorf("the connection ended with %v, want %v", err, nats.ErrStaleConnection)
		}
	case <-time.After(testenv.Patience):
		t.Error("the connection to a frozen server goes on")
	}
}

// freezing returns the URL of a proxy of a server that passes nothing on once it is frozen, and
// keeps its connections open until the test ends.
func freezing(t *testing.T, url string, frozen <-chan struct{}) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var serving sync.WaitGroup
	var mu sync.Mutex
	open := []io.Closer{listener}
	pass := func(to io.Writer, from io.Reader) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			select {
			case <-frozen:
				return
			default:
			}
			if _, wrote := to.Write(buffer[:n]); err != nil || wrote != nil {
				return
			}
		}
	}

	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the test ends
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				t.Error(err)
				_ = client.Close()
				return
			}

			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			serving.Go(func() { pass(client, server) })
			serving.Go(func() { pass(server, client) })
		}
	})
	t.Cleanup(func() {
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return "nats://" + listener.Addr().String()
}
