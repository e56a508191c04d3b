package leaf

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
)

const maxPause = 5 * time.Second // before an attempt to connect

// Conn is a leaf node connection that is made anew whenever it ends. Its methods may be called from
// any goroutine.
type Conn struct {
	config  Config
	limits  limits
	urls    []*url.URL
	dial    func(ctx context.Context, address string) (net.Conn, error)
	id      string // the same for each connect, so that a server replaces a dead connection
	running atomic.Bool
	online  atomic.Pointer[session] // that messages can be published on; nil if offline

	refused int // size of the smallest message that a server refused, 0 if none

	mu       sync.Mutex
	subjects []Subscription
}

// New returns a Conn that Run connects. Its error lists all that is wrong with the configuration.
func New(config Config) (*Conn, error) {
	urls, err := config.check()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		config: config, limits: config.limits(), urls: urls, id: nuid.Next(),
		subjects: slices.Clone(config.Subjects),
	}
	c.dial = func(ctx context.Context, address string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: c.limits.login}
		return dialer.DialContext(ctx, "tcp", address)
	}
	return c, nil
}

// Run connects, and connects again to the next address whenever the connection ends, until ctx
// ends. What was not flushed by then may be lost. Run returns when its goroutines have ended; its
// only error is that it was called twice.
func (c *Conn) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return errors.New("leaf: Run was called twice")
	}

	failed := 0
	for next := rand.IntN(len(c.urls)); ctx.Err() == nil; next++ {
		u := c.urls[next%len(c.urls)]
		began := time.Now()
		err := c.connect(ctx, u)
		if ctx.Err() != nil {
			err = nil
		}
		c.config.Changed(State{Address: u.Host, Err: err})

		// A server that accepts connections only to end them is not to be flooded.
		if time.Since(began) > 2*maxPause {
			failed = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.pause(failed)):
		}
		failed++
	}
	return nil
}

// pause returns how long to wait after a failure that so many preceded. All addresses are tried
// before it grows. Half of it is random, so that many bridges do not come back at once.
func (c *Conn) pause(preceded int) time.Duration {
	wait := min(maxPause, c.limits.minPause<<min(preceded/len(c.urls), 10))
	return wait/2 + rand.N(wait/2)
}

// Drain ends the subscriptions for good, and returns when all messages that the server had sent for
// them were received. Errors: ErrOffline, or that of ctx.
func (c *Conn) Drain(ctx context.Context) error {
	c.mu.Lock()
	if online := c.online.Load(); online != nil {
		for _, s := range c.subjects {
			online.command(s.line("LS-"))
		}
	}
	c.subjects = nil
	c.mu.Unlock()
	return c.Flush(ctx)
}

// Publish sends a message to all who subscribe to its subject, but not to queue groups. It copies the
// message and does not wait: what is published reaches the server in order, or is lost with the
// connection. Errors: ErrOffline, ErrPending, ErrTooLarge, ErrDenied, ErrInvalid.
func (c *Conn) Publish(m *Message) error {
	if err := m.check(); err != nil {
		return err
	}
	online := c.online.Load()
	if online == nil {
		return ErrOffline
	}
	return online.publish(m)
}

// Flush returns when the server has received all that was published before. Errors: ErrOffline, or
// that of ctx.
func (c *Conn) Flush(ctx context.Context) error {
	online := c.online.Load()
	if online == nil {
		return ErrOffline
	}
	answered := make(chan struct{})
	online.ping(func() error { close(answered); return nil })
	select {
	case <-answered:
		return nil
	case <-online.ctx.Done():
		return ErrOffline
	case <-ctx.Done():
		return ctx.Err()
	}
}

// HasInterest reports whether somebody at the server, or reached through it, subscribes to a
// subject, by its name or a wildcard, but not in a queue group. The server tells only of subjects
// that this user may publish to. It is false while offline.
func (c *Conn) HasInterest(subject string) bool {
	online := c.online.Load()
	return online != nil && online.interest.has(subject)
}
