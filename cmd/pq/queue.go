package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// queue is the queue that a command works on: its first argument and --fifo.
type queue struct {
	*app
	fifo bool
	name string
}

func (q *queue) addFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&q.fifo, "fifo", "q", false, "QUEUE is a FIFO queue, which has no priorities")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// check returns the mistakes in the command line that concern the queue.
func (q *queue) check(max bool) error {
	if max && q.fifo {
		return usageError{errors.New("a FIFO queue has one end to read from: leave out --max or --fifo")}
	}
	g, err := q.grammar()
	if err != nil {
		return err
	}
	r := subjects.Request{Kind: subjects.Priority, Verb: subjects.Len, Queue: q.name}
	if q.fifo {
		r.Kind = subjects.FIFO
	}
	if _, err := g.Build(r); err != nil {
		return usageError{err}
	}
	return nil
}

// arguments accepts as many arguments as cmd.Use names, of which the first is
// required.
func arguments(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	problem := ""
	switch {
	case len(args) == 0:
		problem = names[0] + " is missing"
	case len(args) > len(names):
		problem = "too many arguments"
	default:
		return nil
	}
	return fmt.Errorf("%s: want %s %s", problem, cmd.CommandPath(), strings.Join(names, " "))
}
