package bridge

import (
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// intake has a connection read no faster than its messages are looked at. The NATS
// client reads as fast as it can and keeps for the callbacks what they have not seen
// yet. That would be the whole of a flood, each message at many times its size on
// the wire, or what is over a bound would be dropped without an answer. So while
// there is too much of it the connection is not read. NATS then keeps the rest, up
// to max_pending of its configuration, and has those who send it wait.
//
// All of a connection waits then: what other bridges say, answers to pings. The
// callbacks take requests in or refuse them and do not wait for the store, so it is
// not for long, unless NATS does not take the replies.
type intake struct {
	// backlog returns what has been read and not been looked at.
	backlog func() (messages, bytes int)
	dialer  nats.CustomDialer
}

const (
	// intakeMessages and intakeBytes are how much may have been read and not
	// been looked at before the connection is not read.
	intakeMessages = 1 << 14
	intakeBytes    = 8 << 20
	// intakeStep is how many bytes are read between two looks.
	intakeStep = 64 << 10
	// intakePause is the time between two looks while the connection is not read.
	intakePause = time.Millisecond
)

// option is a nats.Option, to be used after others that set a dialer. A connection
// within the process has none, and is read as fast as it can be.
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

// SkipTLSHandshake says what the dialer before says, which is what NATS asks of it.
func (i *intake) SkipTLSHandshake() bool {
	skips, ok := i.dialer.(interface{ SkipTLSHandshake() bool })
	return ok && skips.SkipTLSHandshake()
}

func (i *intake) full() bool {
	messages, bytes := i.backlog()
	return messages >= intakeMessages || bytes >= intakeBytes
}

// backlogOf is the backlog of some subscriptions.
func backlogOf(subscriptions []*nats.Subscription) (messages, bytes int) {
	for _, s := range subscriptions {
		if m, b, err := s.Pending(); err == nil { // else it has ended
			messages += m
			bytes += b
		}
	}
	return messages, bytes
}

// intakeConn is a connection that is read as intake says.
type intakeConn struct {
	net.Conn
	intake *intake
	read   int // bytes since the last look; used by the reader alone

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

// wait waits until there is room, or until the connection is closed.
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
