package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/subjects"
)

// queue is the queue that a command works on: its first argument and its flags.
type queue struct {
	*app
	cmd       *cobra.Command
	verb      subjects.Verb // of its requests
	maxHelp   string        // of --max; without it there is no such flag
	name      string
	fifo, max bool
}

// command makes cmd work on a queue. run gets the arguments that follow the name.
func (q *queue) command(cmd *cobra.Command, run func(args []string) error) *cobra.Command {
	q.addFlags(cmd)
	if cmd.Args == nil {
		cmd.Args = arguments
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		q.name = args[0]
		if err := q.check(); err != nil {
			return err
		}
		return run(args[1:])
	}
	return cmd
}

func (q *queue) addFlags(cmd *cobra.Command) {
	q.cmd = cmd
	cmd.ValidArgsFunction = q.complete
	set := cmd.Flags()
	set.SortFlags = false
	if q.verb != subjects.Move { // which FIFO queues do not have
		set.BoolVarP(&q.fifo, "fifo", "q", false, "QUEUE is a FIFO queue, which has no priorities")
	}
	if q.maxHelp != "" {
		set.BoolVar(&q.max, "max", false, q.maxHelp)
	}
}

// reply is what a command prints: a text for people, or with --json a value or bytes of JSON.
type reply struct {
	text string
	json any
}

// request makes cmd a command of one request, whose reply it prints. If the request changes
// something, unknown says what an unknown outcome may mean.
func (q *queue) request(cmd *cobra.Command, unknown string, do func(context.Context, *session, []string) (reply, error)) *cobra.Command {
	var asJSON bool
	q.command(cmd, func(args []string) error {
		answer, err := ask(q, unknown, func(ctx context.Context, s *session) (reply, error) { return do(ctx, s, args) })
		if err != nil {
			return err
		}
		return q.print(answer, asJSON)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the protocol defines it")
	return cmd
}

func (q *queue) print(r reply, asJSON bool) error {
	out := q.cmd.OutOrStdout()
	if !asJSON {
		_, err := io.WriteString(out, r.text)
		return err
	}
	if encoded, ok := r.json.([]byte); ok {
		_, err := fmt.Fprintf(out, "%s\n", encoded)
		return err
	}
	return json.NewEncoder(out).Encode(r.json)
}

// kind is the kind of the queue.
func (q *queue) kind() subjects.Kind {
	if q.fifo {
		return subjects.FIFO
	}
	return subjects.Priority
}

// check returns the mistakes in the command line that concern the queue.
func (q *queue) check() error {
	if q.max && q.fifo {
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
