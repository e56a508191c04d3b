package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

// Servers that are there, and do not let pq in.
func TestServersThatRefuse(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	c := &cli{t: t, server: "nats://" + web.Listener.Addr().String()}
	_, stderr, code := c.run("", "len", "jobs", "--timeout", "50ms")
	if code != exitError || !strings.HasPrefix(stderr, "pq: cannot connect to NATS at "+c.server+": ") ||
		strings.Contains(stderr, "no server answers") {
		t.Errorf("of a web server: exit code %d, %s", code, stderr)
	}
	logins := testenv.Logins(t)
	secure := logins[slices.IndexFunc(logins, func(l testenv.Login) bool { return l.CAFile != "" })]
	newNATS(t, nil).fails(exitError, "the server has no TLS: leave out --tlsca", "len", "jobs", "--tlsca", secure.CAFile)
	newNATS(t, testenv.ServerOptions(t, secure.Config)).fails(exitError, "name the authority of the server's certificate with --tlsca", "len", "jobs")
}

// Passwords in addresses are not repeated.
func TestAddressesAreRedacted(t *testing.T) {
	c := &cli{t: t, server: "nats://me:secret@127.0.0.1:1"}
	if _, stderr, code := c.run("", "len", "jobs"); code != exitError || strings.Contains(stderr, "secret") || !strings.Contains(stderr, "me:xxxxx@") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
