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
	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
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
		"subject `PREFIX` of priority queues")
	set.StringVar(&a.fifoPrefix, "fifo-prefix", subjects.DefaultFIFOPrefix,
		"subject `PREFIX` of FIFO queues")
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
	json      bool // see addJSON
}

// protocolJSON is the help of most flags --json.
const protocolJSON = "print JSON, as the protocol defines it"

// addJSON adds the flag --json.
func (q *queue) addJSON(help string) {
	q.cmd.Flags().BoolVar(&q.json, "json", false, help)
}

// reply is what a command prints: a text for people, or with --json a value or bytes of JSON.
type reply struct {
	text string
	json any
}

func (q *queue) print(r reply) error {
	out := q.cmd.OutOrStdout()
	if !q.json {
		_, err := io.WriteString(out, terminal.Lines(r.text))
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
	text := terminal.Lines(fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintln(q.cmd.ErrOrStderr(), "pq:", text)
}

// sayRefusal tells people once in an outage that NATS refuses the login: see login.Lasting.
func (q *queue) sayRefusal(why error, news bool) {
	if news && login.IsRefusal(why) {
		q.say("%v", why)
	}
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
		return exit.Usage(err)
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
