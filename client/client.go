// Package client is the Go client of pqbridge: durable priority queues and
// FIFO queues over a NATS connection that the program already has.
//
//	jobs := client.New(nc).PriorityQueue("jobs")
//	_, err := jobs.Push(ctx, 5, []byte("write the report"))
//	item, err := jobs.PopMin(ctx)
//
// # Deadlines
//
// Every call waits for one reply. A context without a deadline gets
// [DefaultTimeout], which is longer than a bridge lets a request wait.
//
// # Errors
//
// All errors compare with errors.Is against the variables of this package.
// Unless an error is [ErrUnknownOutcome], the request changed nothing. Of an
// unknown outcome, a push may or may not be in the queue; an item may have left
// the queue for a pop whose reply was lost, and then it is lost too.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Requests that one goroutine makes
// one after the other are carried out in that order.
package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// DefaultTimeout bounds a call whose context has no deadline.
const DefaultTimeout = 10 * time.Second

// Client sends requests to the bridges behind a NATS connection. The
// connection stays the caller's: a Client needs no Close.
type Client struct {
	nc      *nats.Conn
	grammar subjects.Grammar
}

// New returns a Client for bridges with the default subject prefixes, "pq" and
// "q".
func New(nc *nats.Conn) *Client {
	g, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		panic(err) // the defaults are valid
	}
	return NewWithGrammar(nc, g)
}

// NewWithGrammar returns a Client for bridges with other subject prefixes.
func NewWithGrammar(nc *nats.Conn, g subjects.Grammar) *Client {
	return &Client{nc: nc, grammar: g}
}

// PriorityQueue returns a handle of the priority queue of that name. A name
// that cannot be is reported by each call, as [ErrBadRequest].
func (c *Client) PriorityQueue(name string) *PriorityQueue {
	return &PriorityQueue{queue{c, subjects.Priority, name}}
}

// Queue returns a handle of the FIFO queue of that name, as PriorityQueue does.
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
	if err := ctx.Err(); err != nil { // nothing was sent
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	reply, err := q.client.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: headers, Data: payload})
	if err != nil {
		return nil, requestError(err, subject, verb)
	}
	if failure := subjects.ErrorFromHeaders(reply.Header); failure != nil {
		return nil, (*Error)(failure)
	}
	return reply, nil
}

// requestError says what a request without a reply means for the queue.
func requestError(err error, subject string, verb subjects.Verb) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: nobody answers on %s", ErrNoBridge, subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: the NATS server carries less: %w", ErrTooLarge, err)
	case notSent(err):
		return fmt.Errorf("request on %s: %w", subject, err)
	case writes(verb):
		return fmt.Errorf("%w: no reply on %s: %w", ErrUnknownOutcome, subject, err)
	default:
		return fmt.Errorf("no reply on %s: %w", subject, err)
	}
}

// notSent reports whether the NATS client refused the request before it was
// written anywhere.
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

// writes reports whether the verb can change a queue.
func writes(verb subjects.Verb) bool {
	switch verb {
	case subjects.PeekMin, subjects.PeekMax, subjects.Peek, subjects.Len:
		return false
	default:
		return true
	}
}
