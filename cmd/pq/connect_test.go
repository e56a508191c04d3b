package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

// What is said of a server is true of it.
func TestWhyNotConnected(t *testing.T) {
	const none = "no server answers there"
	c := &connection{timeout: time.Second}
	for _, m := range []struct {
		err   error
		words string
	}{
		{nats.ErrNoServers, none + ": start one with pqbridge -dev, or name another with --server"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "nothing answers there within 1s"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "it accepts the connection, but does not speak as a NATS server within 1s"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nowhere"}}, "lookup nowhere: no such host: name another with --server"},
		{nats.ErrNoInfoReceived, "that is no NATS server"},
		{nats.ErrAuthorization, "look at the login"},
		{fmt.Errorf("%w: expired", nats.ErrAuthExpired), "look at the login"},
		{nats.ErrAuthRevoked, "look at the login"},
		{nats.ErrMaxConnectionsExceeded, "maximum connections exceeded"},
		{nats.ErrSecureConnWanted, "leave out --tlsca"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "with --tlsca"},
		{tls.AlertError(116), "--tlscert, --tlskey"},
	} {
		text := c.whyNot(m.err).Error()
		if !strings.Contains(text, m.words) || strings.Contains(text, none) != (m.err == nats.ErrNoServers) {
			t.Errorf("%v: %s, want words %q", m.err, text, m.words)
		}
	}
}

// Servers that are there, and do not let pq in.
func TestServersThatRefuse(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	c := &cli{t: t, server: "nats://" + web.Listener.Addr().String()}
	c.fails(exitError, "cannot connect to NATS at "+c.server+": ", "len", "jobs", "--timeout", "1s")
	if _, stderr, _ := c.run("", "len", "jobs", "--timeout", "1s"); strings.Contains(stderr, "no server answers") {
		t.Errorf("of a web server: %s", stderr)
	}
	secure := false
	for _, login := range testenv.Logins(t) {
		if login.CAFile == "" {
			continue
		}
		secure = true
		env := testenv.New(t, testenv.Options{Stopped: true})
		env.NATS.Start()
		plain := &cli{t: t, server: env.NATS.URL()}
		plain.fails(exitError, "the server has no TLS: leave out --tlsca", "len", "jobs", "--tlsca", login.CAFile)
		env = testenv.New(t, testenv.Options{Stopped: true, NATS: testenv.ServerOptions(t, login.Config)})
		env.NATS.Start()
		encrypted := &cli{t: t, server: env.NATS.URL()}
		encrypted.fails(exitError, "name the authority of the server's certificate with --tlsca", "len", "jobs")
		break
	}
	if !secure {
		t.Error("no login has TLS: does the test still see them?")
	}
}

// Passwords in addresses are not repeated.
func TestAddressesAreRedacted(t *testing.T) {
	c := &cli{t: t, server: "nats://me:secret@127.0.0.1:1"}
	if _, stderr, code := c.run("", "len", "jobs"); code != exitError || strings.Contains(stderr, "secret") || !strings.Contains(stderr, "me:xxxxx@") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
