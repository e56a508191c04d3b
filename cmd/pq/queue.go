package main

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// queue is the queue a command works on, named by its first argument and --fifo.
type queue struct {
	*app
	fifo bool
	name string
}

func (q *queue) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&q.fifo, "fifo", "q", false, "QUEUE is a FIFO queue, without priorities")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// message returns an empty request: verb for a priority queue, fifoVerb for a
// FIFO queue. Errors are mistakes in the command line.
func (q *queue) message(verb, fifoVerb subjects.Verb) (*nats.Msg, error) {
	grammar, err := subjects.New(q.priorityPrefix, q.fifoPrefix)
	if err != nil {
		return nil, usageError{err}
	}
	r := subjects.Request{Kind: subjects.Priority, Verb: verb, Queue: q.name}
	if q.fifo {
		r.Kind, r.Verb = subjects.FIFO, fifoVerb
	}
	subject, err := grammar.Build(r)
	if err != nil {
		return nil, usageError{err}
	}
	return nats.NewMsg(subject), nil
}

// endMessage returns an empty request that reads one end of the queue: min, or
// max if --max was given; fifo for a FIFO queue.
func (q *queue) endMessage(isMax bool, atMin, atMax, fifo subjects.Verb) (*nats.Msg, error) {
	if isMax && q.fifo {
		return nil, usageError{errors.New("a FIFO queue is read from one end: leave out --max or --fifo")}
	}
	if isMax {
		return q.message(atMax, fifo)
	}
	return q.message(atMin, fifo)
}

// ask connects, sends one request and returns the reply. The end of ctx ends the
// request at once, so it must be one that changes nothing.
func (q *queue) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	c, err := q.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, func() { c.broken(context.Cause(ctx)) })()
	return c.request(m)
}
