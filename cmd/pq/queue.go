package main

import (
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

// errFIFOEnd is for --max with --fifo.
var errFIFOEnd = usageError{errors.New("a FIFO queue is read from one end: leave out --max or --fifo")}
