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

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
)

const maxPause = 5 * time.Second // before an attempt to connect

// Conn is a leaf node connection that reconnects whenever it ends. Its methods are safe for
// concurrent use.
type Conn struct {
	config  Config
	limits  limits
	urls    []*url.URL
	dial    func(ctx context.Context, address string) (net.Conn, error)
	id      string // the same for each connect, so that a server replaces a dead connection
	running atomic.Bool
	online  atomic.Pointer[session] // for Publish; nil while offline

	refused int // bytes of the smallest message that a server refused, 0 if none

	mu       sync.Mutex
	subjects []Subscription
}

// New returns a Conn. Run connects it. The error lists everything that is wrong with the
// configuration.
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

// Run connects, and connects to the next address whenever the connection ends, until ctx ends. What
// was not flushed by then may be lost. Run returns when its goroutines have ended. Its only error
// is that it was called twice.
func (c *Conn) Run(ctx context.Context) error {
	if c.running.Swap(true) {
		return errors.New("leaf: Run was called twice")
	}

	failed := 0
	for next := rand.IntN(len(c.urls)); ctx.Err() == nil; next++ {
		u := c.urls[next%len(c.urls)]
		began := time.Now()
		err := c.connect(ctx, u)
		if ctx.Err() != nil { // the end is no failure
			err = nil
		}
		c.config.Changed(State{Address: u.Host, Err: err})

		// Do not flood a server that accepts connections only to end them.
		if time.Since(began) > 2*maxPause {
			failed = 0
		}
		signal.Pause(ctx, c.pause(failed))
		failed++
	}

	return nil
}

// pause returns how long to wait after a failure, given how many preceded it. It grows after each
// round through the addresses. Half of it is random, so that many bridges do not come back at once.
func (c *Conn) pause(preceded int) time.Duration {
	wait := min(maxPause, c.limits.minPause<<min(preceded/len(c.urls), 10))
	return wait/2 + rand.N(wait/2)
}

// Drain ends the subscriptions for good, and returns when Receive has had all messages that the
// server had sent for them. Errors: ErrOffline, or the context's.
func (c *Conn) Drain(ctx context.Context) error {
	// With the lock, so that a login does not subscribe after this.
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

// HasInterest reports whether somebody at the server, or behind it, subscribes to a subject, by its
// name or a wildcard, but not in a queue group. The server tells only of subjects that this user
// may publish to. It is false while offline.
func (c *Conn) HasInterest(subject string) bool {
	online := c.online.Load()
	return online != nil && online.interest.has(subject)
}
