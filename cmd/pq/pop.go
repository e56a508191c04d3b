package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// popping is the command line of pq pop.
type popping struct {
	queue
	printer
	all   bool
	count flags.Count
	wait  time.Duration
}

func newPop(a *app) *cobra.Command {
	p := &popping{queue: queue{app: a, maxHelp: "take the last item: largest priority, newest"}, count: 1}
	cmd := p.command(&cobra.Command{
		Use:   "pop QUEUE",
		Short: "Take the first item, or several, and print the values",
		Long: `Take the item with the smallest priority out of a queue, the oldest if several
share it, and print its value; on a terminal, and with -n or --all, as a line.

An item that cannot be printed goes back, with a new id, behind the others of
its priority, or else to standard error as a line of JSON. An item is lost if
the connection breaks while it is on its way.`,
		Example: `  pq pop jobs
  pq pop jobs -n 10 --json --wait 1m
  pq pop --fifo mail --all`,
	}, func([]string) error { return p.run() })

	set := cmd.Flags()
	set.VarP(&p.count, "number", "n", "pop up to this `number` of items, one by default")
	set.BoolVar(&p.all, "all", false, "pop until the queue is empty")
	set.DurationVar(&p.wait, "wait", 0, "wait this long for each item; else not at all")
	flags.WithoutDefault(set, "number", "wait")
	p.printer.addFlags(cmd)
	return cmd
}

func (p *popping) run() error {
	cmd := p.cmd
	switch {
	case p.count < 1:
		return exit.UsageError{Err: fmt.Errorf("-n is %d: want at least 1", p.count)}
	case p.all && cmd.Flags().Changed("number"):
		return exit.UsageError{Err: errors.New("-n and --all exclude each other: leave out one")}
	case p.wait < 0:
		return exit.UsageError{Err: fmt.Errorf("--wait is %v: want a duration, such as 30s", p.wait)}
	}

	count := int(p.count)
	if p.all {
		count = math.MaxInt
	}
	if err := terminal.Writable(cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("standard output: %w: nothing was popped", err)
	}

	ctx := cmd.Context()
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	defer interrupt.Say(cmd, "its item may be lost")()

	for n := range count {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		item, err := awaitItem(ctx, p.wait, func(options ...client.PopOption) (*client.Item, error) {
			return s.pop(p.max, options...)
		})

		switch {
		case errors.Is(err, client.ErrEmpty) && n > 0:
			return nil
		case err != nil:
			return s.explainEmpty(err)
		}
		if err := p.printer.print(cmd, newItem(&p.queue, item), count == 1); err != nil {
			return p.putBack(s, item, err, cmd.ErrOrStderr())
		}
	}
	return nil
}

// putBack pushes a popped item that cannot be printed, and returns the error of
// printing it with what became of the item.
func (p *popping) putBack(s *session, item *client.Item, printErr error, stderr io.Writer) error {
	place := "behind the others of its priority"
	if p.fifo {
		place = "at the end of the queue"
	} else if !hasPriority(&p.queue, item) {
		place = "with priority 0, because the reply had no room for its own"
	}

	again, err := s.push(item.Priority, item.Message)
	if err == nil {
		return fmt.Errorf("cannot print the popped item (%w): it was put back with the id %s, %s", printErr, again.ID, place)
	}

	state := "it could not be put back"
	if errors.Is(err, client.ErrUnknownOutcome) {
		state = "it may or may not have been put back"
	}
	where := "it is printed above"
	if err := json.NewEncoder(stderr).Encode(newItem(&p.queue, item)); err != nil {
		where = "it is lost"
	}
	return fmt.Errorf("cannot print the popped item (%w): %s (%w): %s", printErr, state, err, where)
}
