package bridge

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// line is what connections to NATS run over. The NATS client dials, logs in and writes
// while it holds its lock. So while a server does not respond, every other call on the
// connection waits too, Close included, for as long as the client's own timeouts allow:
// two seconds per server for dialing, a minute for a write. cut ends all of that at once.
type line struct {
	whole context.Context // ends when the line is cut
	cut   context.CancelFunc
}

func newLine() *line {
	whole, cut := context.WithCancel(context.Background())
	return &line{whole, cut}
}

// option is a nats.Option that makes a connection run over the line. It must come after
// the options about dialing, which it reads.
func (l *line) option(o *nats.Options) error {
	d := &dialer{line: l, custom: o.CustomDialer, single: net.Dialer{Timeout: o.Timeout}}
	if o.Dialer != nil {
		d.single = *o.Dialer
	}
	o.CustomDialer = d
	o.SkipHostLookup = true // the client's lookup cannot be interrupted; dialer does its own
	return nil
}

// dialer implements nats.CustomDialer.
type dialer struct {
	line   *line
	custom nats.CustomDialer // nil unless the options have one
	single net.Dialer
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if err := d.line.whole.Err(); err != nil {
		return nil, err
	}
	conn, err := d.dial(network, address)
	if err != nil {
		return nil, err
	}
	hangUp := func() { _ = conn.Close() } // an error means that it is closed already
	return &lineConn{conn, context.AfterFunc(d.line.whole, hangUp)}, nil
}

// dial tries all addresses of a host in random order, as the NATS client does.
func (d *dialer) dial(network, address string) (conn net.Conn, err error) {
	if d.custom != nil {
		return d.custom.Dial(network, address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses, err := net.DefaultResolver.LookupHost(d.line.whole, host)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	single := d.single
	single.Timeout /= time.Duration(len(addresses))
	for _, address := range addresses {
		conn, err = single.DialContext(d.line.whole, network, net.JoinHostPort(address, port))
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// lineConn is a connection over a line, which it leaves when it is closed.
type lineConn struct {
	net.Conn
	release func() bool
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.release()
	return c.Conn.Close()
}
