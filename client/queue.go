package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Queue is a handle of a priority queue or a FIFO queue. It has no state of its own.
//
// A FIFO queue serves its items in push order, from the front only. There, a priority other than 0,
// Move, and calls for the other end, such as PopMax, return [ErrBadRequest].
type Queue struct {
	client *Client
	kind   subjects.Kind
	name   string
}

// PriorityQueue returns a handle of the priority queue with that name, 1 to 128 letters, digits,
// '-' and '_'. It sends nothing: a queue exists as soon as it has items or settings. With an
// invalid name, all calls return [ErrBadRequest].
func (c *Client) PriorityQueue(name string) *Queue {
	return &Queue{c, subjects.Priority, name}
}

// FIFOQueue returns a handle of the FIFO queue with that name. See [Client.PriorityQueue].
func (c *Client) FIFOQueue(name string) *Queue { return &Queue{c, subjects.FIFO, name} }

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// subject returns the subject of requests with this verb.
func (q *Queue) subject(verb subjects.Verb) (string, error) {
	request := subjects.Request{Kind: q.kind, Verb: verb, Queue: q.name}
	subject, err := q.client.grammar.Build(request)
	if err != nil {
		return "", badRequest("%v", err)
	}
	return subject, nil
}

// request sends a request and returns the reply. If the bridge replied with an error, it returns
// both.
func (q *Queue) request(ctx context.Context, verb subjects.Verb, headers nats.Header,
	payload []byte) (*nats.Msg, error) {
	subject, err := q.subject(verb)
	if err != nil {
		return nil, err
	}

	m := &nats.Msg{Subject: subject, Header: headers, Data: payload}
	return q.client.request(ctx, m, verb.CanChange())
}

// query sends a request and returns the payload of the reply as parse reads it.
func query[T any](ctx context.Context, q *Queue, verb subjects.Verb, payload []byte,
	parse func([]byte) (T, error)) (T, error) {
	var none T
	var headers nats.Header
	if verb.CanChange() {
		name := cmp.Or(q.client.name, DefaultHolder(q.client.nc))
		headers = nats.Header{subjects.HeaderClient: {settings.CleanText(name, settings.MaxHolder)}}
	}

	reply, err := q.request(ctx, verb, headers, payload)
	if err != nil {
		return none, err
	}

	result, err := parse(reply.Data)
	if err == nil {
		return result, nil
	}
	if verb.CanChange() {
		return none, badReply(err)
	}
	return none, fmt.Errorf("%w: %w", ErrBadReply, err)
}
