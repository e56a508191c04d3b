package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// PriorityQueue is a handle of a priority queue. It has no state of its own.
type PriorityQueue struct{ handle } // which has the methods of both kinds

// Queue is a handle of a FIFO queue. It has no state of its own.
type Queue struct{ handle } // which has the methods of both kinds

// PriorityQueue returns a handle of the priority queue with that name, 1 to 128 letters, digits,
// '-' and '_'. It sends nothing: a queue exists as soon as it has items or settings. With an
// invalid name, all calls return [ErrBadRequest].
func (c *Client) PriorityQueue(name string) *PriorityQueue {
	return &PriorityQueue{handle{c, subjects.Priority, name}}
}

// Queue returns a handle of the FIFO queue with that name. See [Client.PriorityQueue].
func (c *Client) Queue(name string) *Queue {
	return &Queue{handle{c, subjects.FIFO, name}}
}

// handle has the methods of both kinds of queues.
type handle struct {
	client *Client
	kind   subjects.Kind
	name   string
}

// Name returns the name of the queue.
func (q *handle) Name() string { return q.name }

// subject returns the subject of requests with this verb.
func (q *handle) subject(verb subjects.Verb) (string, error) {
	request := subjects.Request{Kind: q.kind, Verb: verb, Queue: q.name}
	subject, err := q.client.grammar.Build(request)
	if err != nil {
		return "", badRequest("%v", err)
	}
	return subject, nil
}

// verb returns the verb for this kind of queue.
func (q *handle) verb(priority, fifo subjects.Verb) subjects.Verb {
	if q.kind == subjects.FIFO {
		return fifo
	}
	return priority
}

func (q *handle) popVerb() subjects.Verb { return q.verb(subjects.PopMin, subjects.Dequeue) }
func (q *handle) pushBatchVerb() subjects.Verb {
	return q.verb(subjects.PushBatch, subjects.EnqueueBatch)
}

// request sends a request and returns the reply. If the bridge replied with an error, it returns
// both.
func (q *handle) request(ctx context.Context, verb subjects.Verb, headers nats.Header,
	payload []byte) (*nats.Msg, error) {
	subject, err := q.subject(verb)
	if err != nil {
		return nil, err
	}

	m := &nats.Msg{Subject: subject, Header: headers, Data: payload}
	reply, err := q.client.request(ctx, m, canChange(verb))
	if refused, ok := err.(*Error); ok {
		refused.verb = verb
	}
	return reply, err
}

// query sends a request and returns the payload of the reply as parse reads it.
func query[T any](ctx context.Context, q *handle, verb subjects.Verb, payload []byte,
	parse func([]byte) (T, error)) (T, error) {
	var none T
	reply, err := q.request(ctx, verb, nil, payload)
	if err != nil {
		return none, err
	}

	result, err := parse(reply.Data)
	if err == nil {
		return result, nil
	}
	if canChange(verb) {
		return none, badReply(err)
	}
	return none, fmt.Errorf("%w: %w", ErrBadReply, err)
}

// canChange reports whether a request with this verb can change a queue.
func canChange(verb subjects.Verb) bool { return !slices.Contains(readVerbs, verb) }

var readVerbs = []subjects.Verb{
	subjects.PeekMin, subjects.PeekMax, subjects.Peek, subjects.Len, subjects.Info,
	subjects.Get, subjects.Rank, subjects.List, subjects.Items, subjects.Schedules,
}
