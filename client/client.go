// Package client is the Go client of pqbridge: durable priority queues and
// FIFO queues over a NATS connection that the program already has.
//
//	jobs := client.New(nc).PriorityQueue("jobs")
//	_, err := jobs.Push(ctx, 5, []byte("write the report"))
//	item, err := jobs.PopMin(ctx)
//
// # Leases
//
// A pop removes the item, so a worker that dies loses it. A lease keeps the item in the
// queue, out of reach of others, until the worker acknowledges it. If the lease ends first,
// the item comes back to its old place, so it is delivered at least once:
//
//	job, err := jobs.LeaseMin(ctx, client.AckWait(time.Minute))
//	...
//	err = job.Ack(ctx)
//
// A [Worker] does all of that: it leases, extends, acknowledges and waits.
//
// # Many items
//
// PopMinBatch and LeaseMinBatch take up to 1,000 items in one request. PushBatch adds up to 4,096 items in one transaction, all or none. PushMany adds any number of them, in several
// batches, and says what became of each. AckAll acknowledges many deliveries with few requests. A [Producer] pushes items as they come, without waiting for each, and with a bound
// on how many are under way.
//
// # Timeouts
//
// Every call waits for its reply, until its context ends. If the context has no
// deadline, the call waits for [DefaultTimeout], or as long as [WithTimeout] says.
//
// A pop or lease of an empty queue returns [ErrEmpty] at once, or waits for an item:
//
//	item, err := jobs.PopMin(ctx, client.Expires(30*time.Second))
//
// # Errors
//
// All errors compare with errors.Is against the variables of this package. [ErrNotSent] says that a request was certainly
// not sent. A request that failed changed nothing, unless the error is [ErrUnknownOutcome]:
// then a push may or may not be in the queue, a pop whose reply was lost may have
// taken an item that nobody will get, and an acknowledgement may or may not count. An
// item that was leased without anybody hearing of it comes back when the lease is over.
//
// While the connection is away, calls wait until it is back, and send nothing before. Once it is closed, they return
// nats.ErrConnectionClosed. It comes with ErrUnknownOutcome if the request may have been sent before that.
//
// If a pop or lease is given up, because its context ends, its wait ends too, and an item that still comes goes back to its
// place, uncounted: NATS tells the bridge that nobody is there. An item that NATS had sent before it heard of that cannot go
// back. So a call whose context ends asks NATS, for half a second at most, whether its reply was on its way, and returns it
// then. Each request under way has a subscription of its own, which later requests take over.
//
// When a context ends, the error wraps both its error and its cause.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Requests that one goroutine makes
// one after another are carried out in that order.
package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// DefaultTimeout bounds calls whose context has no deadline. It is longer than a
// bridge works on a request before it refuses it.
const DefaultTimeout = 10 * time.Second

// Client sends requests to the bridges behind a NATS connection. The connection
// stays the caller's to close.
type Client struct {
	nc      *nats.Conn
	grammar subjects.Grammar
	timeout time.Duration

	modernAfter atomic.Int64 // the time, in nanoseconds since 1970, before which bridges are not asked for what earlier versions refuse
}

// Option changes a Client.
type Option func(*Client)

// WithGrammar is for bridges whose subjects do not begin with the default
// prefixes, "pq" and "q".
func WithGrammar(g subjects.Grammar) Option { return func(c *Client) { c.grammar = g } }

// WithTimeout replaces [DefaultTimeout]. It is more than 0: otherwise all calls return [ErrBadRequest].
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// New returns a Client. Without a connection, all calls return nats.ErrInvalidConnection.
func New(nc *nats.Conn, options ...Option) *Client {
	g, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		panic(err) // the defaults are valid
	}
	c := &Client{nc: nc, grammar: g, timeout: DefaultTimeout}
	for _, option := range options {
		option(c)
	}
	return c
}

// PriorityQueue returns a handle of the priority queue of that name. Calls on a
// name that is not valid return [ErrBadRequest].
func (c *Client) PriorityQueue(name string) *PriorityQueue {
	return &PriorityQueue{queue{c, subjects.Priority, name}}
}

// Queue returns a handle of the FIFO queue of that name; otherwise it is
// PriorityQueue.
func (c *Client) Queue(name string) *Queue {
	return &Queue{queue{c, subjects.FIFO, name}}
}

// queue is what both kinds of handles share.
type queue struct {
	client *Client
	kind   subjects.Kind
	name   string
}

// request sends one request and returns the reply of one that succeeded.
func (q *queue) request(ctx context.Context, verb subjects.Verb, headers nats.Header, payload []byte) (*nats.Msg, error) {
	subject, err := q.subject(verb)
	if err != nil {
		return nil, err
	}
	return q.client.request(ctx, &nats.Msg{Subject: subject, Header: headers, Data: payload}, writes(verb))
}

// subject returns the subject of requests with this verb.
func (q *queue) subject(verb subjects.Verb) (string, error) {
	subject, err := q.client.grammar.Build(subjects.Request{Kind: q.kind, Verb: verb, Queue: q.name})
	if err != nil {
		return "", &Error{Code: subjects.CodeBadRequest, Text: err.Error()}
	}
	return subject, nil
}

// request sends a request, which writes or only reads, and returns the reply, also if that is
// an error.
func (c *Client) request(ctx context.Context, m *nats.Msg, writes bool) (*nats.Msg, error) {
	if err := c.usable(ctx, m); err != nil {
		return nil, err
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if err := c.awaitConnection(ctx, m); err != nil {
		return nil, err
	}
	inbox, err := openInbox(c.nc, 1+spareMessages)
	if err != nil {
		return nil, unsent(m, err)
	}
	m.Reply = inbox.subject
	if err := c.send(ctx, m); err != nil {
		inbox.release(err)
		return nil, err
	}

	reply, err := inbox.next(ctx, 0, nil)
	inbox.release(err)
	if err != nil {
		return nil, c.explain(ctx, m, writes, err)
	}
	if failure := subjects.ErrorFromHeaders(reply.Header); failure != nil {
		return reply, (*Error)(failure)
	}
	return reply, nil
}

// usable returns an error if a request cannot be sent.
func (c *Client) usable(ctx context.Context, m *nats.Msg) error {
	switch {
	case ctx.Err() != nil:
		return endOf(ctx)
	case c.timeout <= 0:
		return &Error{Code: subjects.CodeBadRequest, Text: fmt.Sprintf("WithTimeout is %v: want more than 0", c.timeout)}
	case c.nc == nil:
		return unsent(m, nats.ErrInvalidConnection)
	case c.nc.IsClosed():
		return unsent(m, nats.ErrConnectionClosed)
	}
	return nil
}

// maxPayload is that of the server.
func (c *Client) maxPayload() int64 {
	if c.nc == nil {
		return 0 // the request will say so
	}
	return c.nc.MaxPayload()
}

// bound gives a context without a deadline the client's timeout.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("waited %v", c.timeout))
}

// ended is the end of a context: it reads like the cause, and compares with the
// context's error too.
type ended struct{ cause, err error }

func endOf(ctx context.Context) ended { return ended{context.Cause(ctx), ctx.Err()} }

func (e ended) Error() string   { return e.cause.Error() }
func (e ended) Unwrap() []error { return []error{e.cause, e.err} }

// writes reports whether requests with this verb can change a queue.
func writes(verb subjects.Verb) bool {
	switch verb {
	case subjects.PeekMin, subjects.PeekMax, subjects.Peek, subjects.Len, subjects.Info, subjects.Get, subjects.Rank, subjects.List:
		return false
	default:
		return true
	}
}
