package client

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// DefaultTimeout bounds calls whose context has no deadline. It is longer than a bridge works on a
// request before it refuses it.
const DefaultTimeout = 10 * time.Second

// Client sends requests to the bridges behind a NATS connection. It never closes the connection.
type Client struct {
	connection // send, awaitConnection, explain
	grammar    subjects.Grammar
	timeout    time.Duration
}

// Option changes a Client.
type Option func(*Client)

// WithGrammar is for bridges whose subjects do not begin with the default prefixes, "pq" and "q".
func WithGrammar(g subjects.Grammar) Option { return func(c *Client) { c.grammar = g } }

// WithTimeout replaces [DefaultTimeout]. It must be more than 0: otherwise all calls return
// [ErrBadRequest].
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// New returns a Client. Without a connection, all calls return nats.ErrInvalidConnection.
func New(nc *nats.Conn, options ...Option) *Client {
	g, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		panic(err) // the defaults are valid
	}

	c := &Client{connection: connection{nc}, grammar: g, timeout: DefaultTimeout}
	for _, option := range options {
		option(c)
	}
	return c
}

// request sends a request, which writes or only reads, and returns the reply, which comes with an
// error if the bridge replied with one.
func (c *Client) request(ctx context.Context, m *nats.Msg, writes bool) (*nats.Msg, error) {
	if err := c.checkUsable(ctx, m.Subject); err != nil {
		return nil, err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()

	inbox, err := c.sendFrom(ctx, m, 1+spareMessages)
	if err != nil {
		return nil, err
	}
	reply, err := inbox.next(ctx, 0, interrupts{})
	inbox.release(err)

	if err != nil {
		return nil, c.explain(ctx, m, writes, err)
	}
	return reply, replyError(reply)
}

// checkUsable returns an error if a request on a subject cannot be sent.
func (c *Client) checkUsable(ctx context.Context, subject string) error {
	switch {
	case ctx.Err() != nil:
		return endOf(ctx)
	case c.timeout <= 0:
		return badRequest("WithTimeout is %v: want more than 0", c.timeout)
	case c.nc == nil:
		return notSent(subject, nats.ErrInvalidConnection)
	case c.nc.IsClosed():
		return notSent(subject, nats.ErrConnectionClosed)
	}
	return nil
}

// bound gives a context without a deadline the client's timeout.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.timeout, waited(c.timeout))
}

// waited is the cause of a context that ended because a request took that long.
type waited time.Duration

func (w waited) Error() string { return fmt.Sprintf("waited %v", time.Duration(w)) }

// sendFrom sends a request once the connection is up, and returns the inbox for the up to n
// messages that answer it.
func (c *Client) sendFrom(ctx context.Context, m *nats.Msg, n int) (*inbox, error) {
	if err := c.awaitConnection(ctx, m.Subject); err != nil {
		return nil, err
	}

	inbox, err := openInbox(c.nc, n)
	if err != nil {
		return nil, notSent(m.Subject, err)
	}

	m.Reply = inbox.subject
	if err := c.send(ctx, m); err != nil {
		inbox.release(err)
		return nil, err
	}
	return inbox, nil
}
