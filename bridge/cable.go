package bridge

import (
	"context"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// cable is what connections to NATS run over.
//
// The NATS client dials, logs in and writes while it holds its lock. So while a server does not
// respond, every other call on the connection waits too, Close included, for as long as the
// client's own timeouts allow: two seconds per server for dialing, a minute for a write. cut ends
// all of that at once.
//
// And the client reads as fast as it can and queues messages for the callbacks. In a flood it would
// hold everything in memory, each message at many times its size on the wire, or drop what exceeds
// a limit without an answer. So while the backlog is too large, connections are not read. The NATS
// server then buffers the rest, up to max_pending of its configuration, and slows down the senders.
// Messages from peers and answers to pings wait too, but not for long, because the callbacks accept
// or refuse requests without waiting for the store, unless NATS does not accept the replies.
type cable struct {
	whole context.Context // ends when the cable is cut
	cut   context.CancelFunc
	// backlog returns what has been read but not yet handled by a callback.
	backlog func() (messages, bytes int)
}

const (
	// A backlog of intakeMessages or intakeBytes stops the reading.
	intakeMessages = 1 << 14
	intakeBytes    = 8 << 20
	// intakeStep is how many bytes are read between two checks of the backlog.
	intakeStep = 64 << 10
	// intakePause is the time between two checks while reading is stopped.
	intakePause = time.Millisecond
)

func newCable(backlog func() (messages, bytes int)) *cable {
	whole, cut := context.WithCancel(context.Background())
	return &cable{whole, cut, backlog}
}

// option is a nats.Option that makes a connection run over the cable. It must come after the
// options about dialing, which it reads. An in-process connection is not dialed and has no cable.
func (l *cable) option(o *nats.Options) error {
	d := &dialer{cable: l, custom: o.CustomDialer, single: net.Dialer{Timeout: o.Timeout}}
	if o.Dialer != nil {
		d.single = *o.Dialer
	}
	o.CustomDialer = d
	o.SkipHostLookup = true // the client's lookup cannot be interrupted; net.Dialer's can
	return nil
}

func (l *cable) full() bool {
	messages, bytes := l.backlog()
	return messages >= intakeMessages || bytes >= intakeBytes
}

// dialer implements nats.CustomDialer.
type dialer struct {
	cable  *cable
	custom nats.CustomDialer // nil unless the options have one
	single net.Dialer
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	whole := d.cable.whole
	if whole.Err() != nil {
		return nil, whole.Err()
	}

	conn, err := d.dial(network, address)
	if err != nil {
		return nil, err
	}

	c := &cableConn{Conn: conn, cable: d.cable}
	c.open, c.closed = context.WithCancel(whole)
	c.release = context.AfterFunc(whole, func() { _ = conn.Close() })
	return c, nil
}

func (d *dialer) dial(network, address string) (net.Conn, error) {
	if d.custom != nil {
		return d.custom.Dial(network, address)
	}
	return d.single.DialContext(d.cable.whole, network, address)
}

// cableConn is a connection over a cable.
type cableConn struct {
	net.Conn
	cable   *cable
	open    context.Context // ends when it is closed, or the cable is cut
	closed  func()          // ends open
	release func() bool     // keeps the cut from closing it
	read    int             // bytes since the last check of the backlog; only for the reader
}

// Read implements net.Conn. It waits until the backlog is small enough.
func (c *cableConn) Read(p []byte) (int, error) {
	if c.read >= intakeStep {
		c.read = 0
		for c.cable.full() && c.open.Err() == nil {
			select {
			case <-c.open.Done():
			case <-time.After(intakePause):
			}
		}
	}

	n, err := c.Conn.Read(p)
	c.read += n
	return n, err
}

// Close implements net.Conn.
func (c *cableConn) Close() error {
	c.release()
	c.closed()
	return c.Conn.Close()
}
