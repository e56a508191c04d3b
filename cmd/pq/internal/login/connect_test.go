package login

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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
		{nats.ErrNoInfoReceived, "that is no NATS server"},
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
