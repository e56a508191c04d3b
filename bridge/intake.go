package bridge

import (
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// intake reads a connection no faster than the callbacks handle its messages. By itself
// the NATS client reads as fast as it can and queues messages for the callbacks. In a
// flood it would hold everything in memory, each message at many times its size on the
// wire, or drop what exceeds a limit without an answer. So while the backlog is too
// large, intake stops reading. The NATS server then buffers the rest, up to max_pending
// of its configuration, and slows down the senders.
//
// Everything else on the connection waits too: messages from peers, and answers to
// pings. That does not take long, because the callbacks accept or refuse requests
// without waiting for the store, unless NATS does not accept the replies.
type intake struct {
	// backlog returns what has been read but not yet handled by a callback.
	backlog func() (messages, bytes int)
	dialer  nats.CustomDialer
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

// option is a nats.Option that must come after those that set a dialer. An in-process
// connection has no dialer and is read without limits.
func (i *intake) option(o *nats.Options) error {
	switch {
	case o.CustomDialer != nil:
		i.dialer = o.CustomDialer
	case o.Dialer != nil:
		i.dialer = o.Dialer
	default:
		i.dialer = &net.Dialer{Timeout: o.Timeout}
	}
	o.CustomDialer = i
	return nil
}

// Dial implements nats.CustomDialer.
func (i *intake) Dial(network, address string) (net.Conn, error) {
	conn, err := i.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &intakeConn{Conn: conn, intake: i, closed: make(chan struct{})}, nil
}

// SkipTLSHandshake returns what the wrapped dialer does. The NATS client looks for
// this method.
func (i *intake) SkipTLSHandshake() bool {
	skips, ok := i.dialer.(interface{ SkipTLSHandshake() bool })
	return ok && skips.SkipTLSHandshake()
}

func (i *intake) full() bool {
	messages, bytes := i.backlog()
	return messages >= intakeMessages || bytes >= intakeBytes
}

// intakeConn is a connection that intake slows down.
type intakeConn struct {
	net.Conn
	intake *intake
	read   int // bytes since the last check; used by the reader alone

	close  sync.Once
	closed chan struct{}
}

// Read implements net.Conn.
func (c *intakeConn) Read(p []byte) (int, error) {
	if c.read >= intakeStep {
		c.read = 0
		c.wait()
	}
	n, err := c.Conn.Read(p)
	c.read += n
	return n, err
}

// wait returns when the backlog is small enough, or the connection is closed.
func (c *intakeConn) wait() {
	if !c.intake.full() {
		return
	}
	ticker := time.NewTicker(intakePause)
	defer ticker.Stop()
	for c.intake.full() {
		select {
		case <-c.closed:
			return
		case <-ticker.C:
		}
	}
}

// Close implements net.Conn.
func (c *intakeConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
