package login

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/outage"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
)

// checkOptions returns the mistake in the addresses and the files that name a login, which the NATS
// client would look at only when it connects.
func (c *Connection) checkOptions(options []nats.Option) error {
	for server := range strings.SplitSeq(c.Server, ",") {
		if err := checkURL(strings.TrimSpace(server)); err != nil {
			return exit.Error{Err: err}
		}
	}

	var o nats.Options
	for _, option := range options {
		if err := option(&o); err != nil {
			err = fmt.Errorf("the files for TLS, --inbox-prefix or the login: %w", err)
			return exit.Error{Err: err}
		}
	}

	if o.UserJWT != nil {
		if _, err := o.UserJWT(); err != nil {
			return exit.Error{Err: fmt.Errorf("the credentials: %w", err)}
		}
	}

	return nil
}

// checkURL returns the mistake in the address of a server.
func checkURL(server string) error {
	const want = "want the URL of a NATS server, such as nats://127.0.0.1:4222"
	text := server
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}

	u, err := url.Parse(text)
	if err == nil {
		_, err = strconv.ParseUint(cmp.Or(u.Port(), "4222"), 10, 16)
	}
	if err != nil || u.Hostname() == "" ||
		!slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
		return fmt.Errorf("the address %q: %s", redacted(server), want)
	}

	return nil
}

// ConnectAny returns a connection whose permissions nobody has checked.
func (c *Connection) ConnectAny(options []nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(c.Server, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w", redacted(c.Server),
			c.whyNot(err))
	}
	return nc, nil
}

// Errors that Lasting tells.
var (
	ErrRefused = errors.New("NATS refuses the login, trying again")
	ErrTLS     = errors.New("TLS with NATS is refused, trying again")
	ErrAway    = errors.New("no connection to NATS, trying again")
)

// IsRefusal reports whether a server that can be reached does not let this user in.
func IsRefusal(why error) bool { return errors.Is(why, ErrRefused) || errors.Is(why, ErrTLS) }

// Lasting returns options for a command that goes on until a signal ends it. Its connection
// reconnects however long that takes, also while the server refuses the login: an operator may
// correct the server's accounts. say is told why each attempt failed, ErrRefused, ErrTLS or
// ErrAway, and whether that is news in this outage; and nil when the outage is over.
func (c *Connection) Lasting(say func(why error, news bool)) []nats.Option {
	var mu sync.Mutex // two goroutines of the NATS client report
	said := map[error]bool{}

	failed := func(err error) {
		kind := ErrAway
		switch {
		case outage.IsRefused(err):
			kind = ErrRefused
		case outage.IsTLS(err):
			kind = ErrTLS
		}

		mu.Lock()
		defer mu.Unlock()
		say(fmt.Errorf("%w: %w", kind, c.whyNot(err)), !said[kind])
		said[kind] = true
	}

	connected := func(*nats.Conn) {
		mu.Lock()
		defer mu.Unlock()
		if len(said) > 0 {
			clear(said)
			say(nil, true)
		}
	}

	return []nats.Option{
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(time.Second), nats.ReconnectJitter(time.Second, time.Second),
		nats.ConnectHandler(connected), nats.ReconnectHandler(connected), outage.Hear(failed),
	}
}

// redacted returns addresses without the passwords in them.
func redacted(servers string) string {
	list := strings.Split(servers, ",")
	for i, server := range list {
		if u, err := url.Parse(server); err == nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}

// whyNot adds to the error of an attempt to connect what the user can do.
func (c *Connection) whyNot(err error) error {
	const login = "look at the login (pq help connection)"

	var slow net.Error
	var dialed *net.OpError
	var unknownName *net.DNSError
	isTimeout := errors.As(err, &slow) && slow.Timeout()
	switch {
	case errors.Is(err, nats.ErrNoServers):
		return errors.New("no server answers there: " +
			"start one with pqbridge -dev, or name another with --server")
	case errors.As(err, &unknownName):
		return fmt.Errorf("%w: name another with --server", err)
	case isTimeout && errors.As(err, &dialed) && dialed.Op == "dial":
		return fmt.Errorf("nothing answers there within %v: look at the address and the network, "+
			"or name another with --server", c.connectTimeout())
	case isTimeout, errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("it accepts the connection, but does not speak as a NATS server "+
			"within %v: it may be overloaded, something else, or want TLS first "+
			"(tls_first of a context)", c.connectTimeout())
	case errors.Is(err, nats.ErrNoInfoReceived):
		return errors.New("something answers there, but it is not a NATS server: " +
			"name another with --server")
	case outage.IsRefused(err):
		return fmt.Errorf("%w: %s", err, login)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("%w: the server has no TLS: leave out --tlsca, --tlscert and tls://", err)
	case isCertificate(err):
		return fmt.Errorf("%w: name the authority of the server's certificate with --tlsca, "+
			"and use a server name that is in the certificate", err)
	case outage.IsTLS(err):
		return fmt.Errorf("%w: the server may want a client certificate (--tlscert, --tlskey)", err)
	}

	return err
}

// isCertificate reports whether the certificate of the server was not accepted.
func isCertificate(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(x509.UnknownAuthorityError)) ||
		errors.As(err, new(x509.HostnameError)) || errors.As(err, new(x509.CertificateInvalidError))
}
