package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// DefaultTimeout bounds calls whose context has no deadline. A bridge refuses a request earlier
// than that if it cannot run it.
const DefaultTimeout = 10 * time.Second

// Client sends requests to the bridges behind a NATS connection. It never closes the connection.
type Client struct {
	connection // send, awaitConnection, explain
	grammar    subjects.Grammar
	timeout    time.Duration
	name       string // what it says of itself, "" for the default
}

// Option changes a Client.
type Option func(*Client)

// WithGrammar is for bridges with other subject prefixes than "pq" and "q".
func WithGrammar(g subjects.Grammar) Option { return func(c *Client) { c.grammar = g } }

// WithTimeout replaces [DefaultTimeout]. It must be more than 0: otherwise all calls return
// [ErrBadRequest].
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithName replaces [DefaultHolder] as what this client says of itself when it changes items,
// settings or a schedule by a request, which the bridges log. It is cut at 128 bytes.
func WithName(name string) Option { return func(c *Client) { c.name = name } }

// DefaultHolder names this process: its host, its process id and, if nc has one, the name of the
// connection (nats.Name). nc may be nil.
func DefaultHolder(nc *nats.Conn) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s pid %d", host, os.Getpid())
	if nc != nil && nc.Opts.Name != "" {
		name += " " + nc.Opts.Name
	}

	// The names of hosts and connections may contain anything.
	return settings.CleanText(name, settings.MaxHolder)
}

// New returns a Client that sends its requests over nc. If nc is nil, all calls return
// nats.ErrInvalidConnection.
//
// The first New for a connection puts a handler in front of its error handler, to learn which
// requests the NATS server refuses: see the package's section Permissions. The error handler still
// gets every error. One that is set later replaces both, so set it before.
func New(nc *nats.Conn, options ...Option) *Client {
	g, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		panic(err) // the defaults are valid
	}

	c := &Client{
		connection: connection{nc: nc},
		grammar:    g,
		timeout:    DefaultTimeout,
	}

	if nc != nil {
		c.link = linkOf(nc)
	}
	for _, option := range options {
		option(c)
	}
	return c
}

// request sends a request and returns the reply. If the bridge replied with an error, it returns
// both. writes says whether the request can change a queue.
func (c *Client) request(ctx context.Context, m *nats.Msg, writes bool) (*nats.Msg, error) {
	return c.requestUnless(ctx, m, writes, interrupts{})
}

// requestUnless is request, and returns errInterrupted as soon as an interrupt comes.
func (c *Client) requestUnless(
	ctx context.Context, m *nats.Msg, writes bool, on interrupts,
) (*nats.Msg, error) {
	if err := c.checkUsable(ctx, m.Subject); err != nil {
		return nil, err
	}

	ctx, cancel := c.bound(ctx)
	defer cancel()

	inbox, err := c.sendFrom(ctx, m, 1+spareMessages)
	if err != nil {
		return nil, err
	}

	reply, err := inbox.next(ctx, 0, on)
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

// waited is the cause of a context that ended because a request took so long.
type waited time.Duration

func (w waited) Error() string { return fmt.Sprintf("waited %v", time.Duration(w)) }

// sendFrom sends a request once the connection is up. It returns the inbox for the reply of up to n
// messages.
func (c *Client) sendFrom(ctx context.Context, m *nats.Msg, n int) (*inbox, error) {
	if err := c.awaitConnection(ctx, m.Subject); err != nil {
		return nil, err
	}

	inbox, err := openInbox(c.connection, n)
	if err != nil {
		return nil, notSent(m.Subject, err)
	}

	if inbox.requests == 1 {
		if err := c.checkReplies(ctx, inbox); err != nil {
			inbox.state = givenUp
			inbox.release(err)
			return nil, notSent(m.Subject, err)
		}
	}

	m.Reply = inbox.subject
	if err := c.send(ctx, m, inbox); err != nil {
		inbox.release(err)
		return nil, err
	}
	return inbox, nil
}

// errAway is why a request was not sent.
var errAway = errors.New("the connection to NATS is down")

// awaitConnection returns nil once the connection is up or closed, or an error if ctx ends first.
// The error names the subject.
func (c connection) awaitConnection(ctx context.Context, subject string) error {
	if !isAway(c.nc) {
		return nil
	}

	changes := c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer c.nc.RemoveStatusListener(changes)

	for isAway(c.nc) {
		select {
		case <-changes:
		case <-ctx.Done():
			return notSent(subject, fmt.Errorf("%w: %w", errAway, endOf(ctx)))
		}
	}
	return nil
}

// send publishes a request once the connection is up. The inbox is for its reply.
func (c connection) send(ctx context.Context, m *nats.Msg, i *inbox) error {
	for {
		if err := c.awaitConnection(ctx, m.Subject); err != nil {
			return err
		}

		err := c.publish(m, i)
		switch {
		case errors.Is(err, nats.ErrReconnectBufExceeded): // it is away again, with a full buffer
			i.decide()
			continue
		case errors.Is(err, nats.ErrConnectionClosed):
			return notSent(m.Subject, err)
		case err != nil:
			return c.explain(ctx, m, true, err)
		}
		return nil
	}
}

// explain returns the error of a request that failed in the NATS client with err. A request that
// only reads has no unknown outcome.
func (c connection) explain(ctx context.Context, m *nats.Msg, writes bool, err error) error {
	subject := subjects.HideTokens(m.Subject)
	switch {
	case errors.Is(err, ErrNotSent): // the server has refused it
		return err
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w on %s", ErrNoBridge, subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: a value of %d bytes, and the NATS server takes %d bytes at most, "+
			"headers included (%w)", ErrTooLarge, len(m.Data), c.nc.MaxPayload(), err)
	case isAny(err, nats.ErrInvalidConnection, nats.ErrHeadersNotSupported, nats.ErrBadSubject,
		nats.ErrBadHeaderMsg, nats.ErrConnectionDraining): // the NATS client did not send it
		return notSent(m.Subject, err)
	case errors.Is(err, nats.ErrPermissionViolation): // the server has refused the subscription
	case ctx.Err() != nil:
		err = endOf(ctx)
	}

	if writes {
		return fmt.Errorf("%w: no reply on %s: %w", ErrUnknownOutcome, subject, err)
	}
	return fmt.Errorf("no reply on %s: %w", subject, err)
}

// maxPayload returns the server's max_payload, or 0 without a connection, when requests fail
// anyway.
func (c connection) maxPayload() int64 {
	if c.nc == nil {
		return 0
	}
	return c.nc.MaxPayload()
}
