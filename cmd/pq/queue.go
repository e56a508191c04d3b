package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/subjects"
)

// app is what all commands share: the global flags.
type app struct {
	login.Connection
	priorityPrefix, fifoPrefix string
	grammar                    subjects.Grammar // of the bridge, with these prefixes
}

func (a *app) addFlags(set *pflag.FlagSet) {
	set.SortFlags = false
	a.Connection.AddFlags(set)
	set.StringVar(&a.priorityPrefix, "prefix", subjects.DefaultPriorityPrefix,
		"subject `PREFIX` of priority queues, pq by default")
	set.StringVar(&a.fifoPrefix, "fifo-prefix", subjects.DefaultFIFOPrefix,
		"subject `PREFIX` of FIFO queues, q by default")
	flags.WithoutDefault(set, "prefix", "fifo-prefix")
}

// prepare sets flags that were not given from the environment, and checks the global flags.
func (a *app) prepare(set *pflag.FlagSet) (err error) {
	a.grammar, err = subjects.New(a.priorityPrefix, a.fifoPrefix)
	return cmp.Or(err, a.FromEnv(set))
}

// queue is the queue that a command works on: its first argument and its flags.
type queue struct {
	*app
	cmd       *cobra.Command
	maxHelp   string // of --max; without it there is no such flag
	name      string
	fifo, max bool
}

// reply is what a command prints: a text for people, or with --json a value or bytes of JSON.
type reply struct {
	text string
	json any
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

// say tells people something. There is nowhere to report a failure.
func (q *queue) say(format string, args ...any) {
	_, _ = fmt.Fprintf(q.cmd.ErrOrStderr(), "pq: "+format+"\n", args...)
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
		return exit.Usagef("a FIFO queue has one end to read from: leave out --max or --fifo")
	}

	r := subjects.Request{Kind: q.kind(), Verb: subjects.Len, Queue: q.name}
	if _, err := q.grammar.Build(r); err != nil {
		return exit.UsageError{Err: err}
	}

	return nil
}

// arguments accepts as many arguments as cmd.Use names. Those in brackets can be left out, and
// there can be more of one with dots.
func arguments(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	problem := ""
	switch {
	case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
		problem = strings.TrimSuffix(names[len(args)], "...") + " is missing"
	case len(args) > len(names) && !strings.Contains(cmd.Use, "..."):
		problem = "too many arguments"
	default:
		return nil
	}

	return fmt.Errorf("%s: want %s", problem,
		strings.Join(append([]string{cmd.CommandPath()}, names...), " "))
}
