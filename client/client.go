// Package client is the Go client of pqbridge: durable priority queues and
// FIFO queues over a NATS connection that the program already has.
//
//	jobs := client.New(nc).PriorityQueue("jobs")
//	_, err := jobs.Push(ctx, 5, []byte("write the report"))
//	item, err := jobs.PopMin(ctx)
//
// # Timeouts
//
// Every call waits for one reply, until its context ends. If the context has no
// deadline, the call waits for [DefaultTimeout], or as long as [WithTimeout] says.
//
// # Errors
//
// All errors compare with errors.Is against the variables of this package. A
// request that failed changed nothing, unless the error is [ErrUnknownOutcome]:
// then a push may or may not be in the queue, and a pop whose reply was lost may
// have taken an item that nobody will get.
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
	"errors"
	"fmt"
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
}

// Option changes a Client.
type Option func(*Client)

// WithGrammar is for bridges whose subjects do not begin with the default
// prefixes, "pq" and "q".
func WithGrammar(g subjects.Grammar) Option { return func(c *Client) { c.grammar = g } }

// WithTimeout replaces [DefaultTimeout].
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// New returns a Client.
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
	subject, err := q.client.grammar.Build(subjects.Request{Kind: q.kind, Verb: verb, Queue: q.name})
	if err != nil {
		return nil, &Error{Code: subjects.CodeBadRequest, Text: err.Error()}
	}
	if ctx.Err() != nil { // nothing was sent
		return nil, endOf(ctx)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, q.client.timeout, fmt.Errorf("waited %v", q.client.timeout))
		defer cancel()
	}
	reply, err := q.client.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: headers, Data: payload})
	switch {
	case err == nil:
		if failure := subjects.ErrorFromHeaders(reply.Header); failure != nil {
			return nil, (*Error)(failure)
		}
		return reply, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w on %s", ErrNoBridge, subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("%w: a value of %d bytes, and the NATS server takes %d bytes at most, headers included (%w)",
			ErrTooLarge, len(payload), q.client.nc.MaxPayload(), err)
	case notSent(err):
		return nil, fmt.Errorf("cannot send a request on %s: %w", subject, err)
	case ctx.Err() != nil:
		err = endOf(ctx)
	}
	if writes(verb) {
		return nil, fmt.Errorf("%w: no reply on %s: %w", ErrUnknownOutcome, subject, err)
	}
	return nil, fmt.Errorf("no reply on %s: %w", subject, err)
}

// ended is the end of a context: it reads like the cause, and compares with the
// context's error too.
type ended struct{ cause, err error }

func endOf(ctx context.Context) ended { return ended{context.Cause(ctx), ctx.Err()} }

func (e ended) Error() string   { return e.cause.Error() }
func (e ended) Unwrap() []error { return []error{e.cause, e.err} }

// notSent reports whether the NATS client refused to send the request.
func notSent(err error) bool {
	for _, refusal := range []error{
		nats.ErrInvalidConnection, nats.ErrHeadersNotSupported, nats.ErrBadSubject,
		nats.ErrBadHeaderMsg, nats.ErrReconnectBufExceeded, nats.ErrConnectionDraining,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// writes reports whether requests with this verb can change a queue.
func writes(verb subjects.Verb) bool {
	switch verb {
	case subjects.PeekMin, subjects.PeekMax, subjects.Peek, subjects.Len:
		return false
	default:
		return true
	}
}
