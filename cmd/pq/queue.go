package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/subjects"
)

// queue is the queue that a command works on: its first argument and --fifo.
type queue struct {
	*app
	fifo bool
	name string
	verb subjects.Verb // of its requests
}

func (q *queue) addFlags(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&q.fifo, "fifo", "q", false, "QUEUE is a FIFO queue, which has no priorities")
	cmd.ValidArgsFunction = q.complete
}

// kind is the kind of the queue.
func (q *queue) kind() subjects.Kind {
	if q.fifo {
		return subjects.FIFO
	}
	return subjects.Priority
}

// check returns the mistakes in the command line that concern the queue.
func (q *queue) check(max bool) error {
	if max && q.fifo {
		return exit.UsageError{Err: errors.New("a FIFO queue has one end to read from: leave out --max or --fifo")}
	}
	g, err := q.grammar()
	if err != nil {
		return err
	}
	if _, err := g.Build(subjects.Request{Kind: q.kind(), Verb: subjects.Len, Queue: q.name}); err != nil {
		return exit.UsageError{Err: err}
	}
	return nil
}

// arguments accepts as many arguments as cmd.Use names. Those in brackets can be left out, and
// there can be more of a last one with dots.
func arguments(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	problem := ""
	switch {
	case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
		problem = strings.TrimSuffix(names[len(args)], "...") + " is missing"
	case len(args) > len(names) && (len(names) == 0 || !strings.Contains(names[len(names)-1], "...")):
		problem = "too many arguments"
	default:
		return nil
	}
	return fmt.Errorf("%s: want %s", problem, strings.Join(append([]string{cmd.CommandPath()}, names...), " "))
}
