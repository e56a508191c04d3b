package bridge

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// cable is what connections to NATS run over. The NATS client dials, logs in and writes
// while it holds its lock. So while a server does not respond, every other call on the
// connection waits too, Close included, for as long as the client's own timeouts allow:
// two seconds per server for dialing, a minute for a write. cut ends all of that at once.
type cable struct {
	whole context.Context // ends when the cable is cut
	cut   context.CancelFunc
}

func newCable() *cable {
	whole, cut := context.WithCancel(context.Background())
	return &cable{whole, cut}
}

// option is a nats.Option that makes a connection run over the cable. It must come after
// the options about dialing, which it reads.
func (l *cable) option(o *nats.Options) error {
	d := &dialer{cable: l, custom: o.CustomDialer, single: net.Dialer{Timeout: o.Timeout}}
	if o.Dialer != nil {
		d.single = *o.Dialer
	}
	o.CustomDialer = d
	o.SkipHostLookup = true // the client's lookup cannot be interrupted; dialer does its own
	return nil
}

// dialer implements nats.CustomDialer.
type dialer struct {
	cable  *cable
	custom nats.CustomDialer // nil unless the options have one
	single net.Dialer
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if err := d.cable.whole.Err(); err != nil {
		return nil, err
	}
	conn, err := d.dial(network, address)
	if err != nil {
		return nil, err
	}
	hangUp := func() { _ = conn.Close() } // an error means that it is closed already
	return &cableConn{conn, context.AfterFunc(d.cable.whole, hangUp)}, nil
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
	addresses, err := net.DefaultResolver.LookupHost(d.cable.whole, host)
	if err != nil {
		return nil, err
	}

	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	single := d.single
	single.Timeout /= time.Duration(len(addresses))

	for _, address := range addresses {
		conn, err = single.DialContext(d.cable.whole, network, net.JoinHostPort(address, port))
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// cableConn is a connection over a cable, which it leaves when it is closed.
type cableConn struct {
	net.Conn
	release func() bool
}

// Close implements net.Conn.
func (c *cableConn) Close() error {
	c.release()
	return c.Conn.Close()
}
