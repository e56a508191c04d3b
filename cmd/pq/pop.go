package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// pop is the command line of pq pop.
type pop struct {
	queue
	printer
	max, all bool
	count    int
}

func newPop(a *app) *cobra.Command {
	p := &pop{queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "pop QUEUE",
		Short: "Take the first item out and print its value",
		Long: `Take the item with the smallest priority out of a queue, the oldest of those
that share it, and print its value.

A single value is printed as it is, with a newline added on a terminal only.
With -n or --all each value is followed by a newline.

An item is gone from the queue before it is printed: if the connection breaks
at the wrong moment, it is lost.`,
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
	flags.IntVarP(&p.count, "number", "n", 1, "pop up to this `number` of items")
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
	count := p.count
	if p.all {
		count = math.MaxInt
	}
	c, err := p.dial(cmd.Context())
	if err != nil {
		return err
	}
	defer c.close()
	for n := range count {
		reply, err := c.request(m)
		if errors.Is(err, errEmpty) && n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.print(cmd.OutOrStdout(), reply, p.name, count == 1); err != nil {
			return fmt.Errorf("an item was popped, but cannot be printed: %w", err)
		}
	}
	return nil
}
