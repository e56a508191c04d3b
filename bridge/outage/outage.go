// Package outage finds out why there is no connection to NATS.
package outage

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Hear returns an option that makes a connection tell failed why an attempt to connect failed. It
// comes after the options with the ConnectHandler, which is required, TLS and pauses, and replaces
// ReconnectErrHandler and CustomReconnectDelay.
//
// By itself the NATS client tells handlers only of servers that it cannot dial: not that TLS
// failed nor, before the first connection, that a server refused the login. So this looks before
// each pause between attempts. With several servers, it then sees what the last one said.
//
// Several goroutines may call failed, but none waits for the connection meanwhile.
func Hear(failed func(err error)) nats.Option {
	return func(o *nats.Options) error {
		var known atomic.Pointer[nats.Conn]
		connected, wait, jitter := o.ConnectedCB, o.ReconnectWait, o.ReconnectJitter
		if o.Secure || o.TLSConfig != nil {
			jitter = o.ReconnectJitterTLS
		}

		o.ConnectedCB = func(nc *nats.Conn) {
			known.Store(nc)
			connected(nc)
		}

		o.ReconnectErrCB = func(nc *nats.Conn, err error) {
			known.Store(nc)
			failed(err)
		}

		o.CustomReconnectDelayCB = func(int) time.Duration {
			if nc := known.Load(); nc != nil && nc.LastError() != nil {
				failed(nc.LastError())
			}
			return wait + rand.N(jitter+1)
		}

		return nil
	}
}

// IsRefused reports whether a server has refused the login.
func IsRefused(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) ||
		errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrAccountAuthExpired) || errors.Is(err, nats.ErrNkeysNotSupported)
}

// IsTLS reports whether client and server do not agree on TLS, for example because one of them does
// not accept the other's certificate.
func IsTLS(err error) bool {
	var op *net.OpError
	return errors.Is(err, nats.ErrTLS) || errors.Is(err, nats.ErrSecureConnWanted) ||
		errors.As(err, &op) && op.Op == "remote error" // as crypto/tls has it
}
