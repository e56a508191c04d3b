package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// pop is the command line of pq pop.
type pop struct {
	queue
	printer
	max, all bool
	count    countFlag
}

func newPop(a *app) *cobra.Command {
	p := &pop{queue: queue{app: a}, count: 1}
	cmd := &cobra.Command{
		Use:   "pop QUEUE",
		Short: "Take the first item out and print its value",
		Long: `Take the item with the smallest priority out of a queue, the oldest of those
that share it, and print its value.

A single value is printed as it is, with a newline added on a terminal only.
With -n or --all each value is followed by a newline.

An item is gone from the queue before it is printed: if the connection breaks
at the wrong moment, it is lost. An item that cannot be printed, because the disk
is full or whatever reads the output is gone, is pushed again: it gets a new id
and comes behind the others of its priority. (The first part of its value may be
in the output all the same.) If even that fails, it is printed on standard error
as a line of JSON. With standard output closed nothing is popped.`,
		Example: `  pq pop jobs
  pq pop jobs --max
  pq pop jobs -n 10 --json
  pq pop --fifo mail --all`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return p.run(cmd)
		},
	}
	p.queue.addFlags(cmd)
	p.printer.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&p.max, "max", false, "take the largest priority, the newest of those that share it")
	flags.VarP(&p.count, "number", "n", "pop up to this `number` of items")
	flags.BoolVar(&p.all, "all", false, "pop until the queue is empty")
	return cmd
}

func (p *pop) run(cmd *cobra.Command) error {
	switch {
	case p.count < 1:
		return usageError{fmt.Errorf("-n is %d: want at least 1", p.count)}
	case p.all && cmd.Flags().Changed("number"):
		return usageError{errors.New("-n and --all exclude each other: leave out one")}
	}
	m, err := p.endMessage(p.max, subjects.PopMin, subjects.PopMax, subjects.Dequeue)
	if err != nil {
		return err
	}
	count := int(p.count)
	if p.all {
		count = math.MaxInt
	}
	if err := writable(cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("standard output: %w: nothing was popped", err)
	}
	ctx := cmd.Context()
	c, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	defer sayInterrupted(cmd, "its item may be lost")()
	for n := range count {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reply, err := c.request(m)
		switch {
		case errors.Is(err, errEmpty) && n > 0:
			return nil
		case errors.As(err, new(unknownError)):
			return fmt.Errorf("%w: the outcome is unknown, an item may have been taken out and lost", err)
		case err != nil:
			return err
		}
		if err := p.print(cmd.OutOrStdout(), reply, p.name, count == 1); err != nil {
			return p.putBack(c, reply, err, cmd.ErrOrStderr())
		}
	}
	return nil
}

// putBack pushes an item again that was popped and cannot be printed because of
// an error, and returns that error with what became of the item.
func (p *pop) putBack(c *client, popped *nats.Msg, printErr error, stderr io.Writer) error {
	m, err := p.message(subjects.Push, subjects.Enqueue)
	if err != nil {
		return err // did not happen for the pop
	}
	m.Data, m.Header = popped.Data, maps.Clone(popped.Header)
	m.Header.Del(subjects.HeaderID)
	m.Header.Del(subjects.HeaderPushedAt)
	place := "behind the others of its priority"
	if p.fifo {
		place = "at the end of the queue"
	} else if m.Header.Get(subjects.HeaderPriority) == "" {
		place = "with priority 0, because its own did not fit into the reply"
	}
	again, err := c.push(m)
	if err == nil {
		return fmt.Errorf("the item that was popped cannot be printed (%w): it was put back with the id %s, %s", printErr, again.ID, place)
	}
	state := "it could not be put back"
	if errors.As(err, new(unknownError)) {
		state = "it may or may not have been put back"
	}
	where := "it is printed above"
	if err := (&printer{json: true}).print(stderr, popped, p.name, true); err != nil {
		where = "it is lost"
	}
	return fmt.Errorf("the item that was popped cannot be printed (%w): %s (%w): %s", printErr, state, err, where)
}
