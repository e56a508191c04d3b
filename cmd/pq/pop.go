package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// popping is the command line of pq pop.
type popping struct {
	queue
	all   bool
	count int
	wait  time.Duration
}

func newPop(a *app) *cobra.Command {
	p := &popping{queue: queue{app: a, maxHelp: "take the last item: largest priority, newest"}}
	cmd := p.command(&cobra.Command{
		Use:   "pop QUEUE",
		Short: "Take the first item, or several, and print the values",
		Long: `Take the item with the smallest priority out of a queue, the oldest if several
share it, and print its value; on a terminal, and with -n or --all, as a line.

It leases items, prints them, and removes them then. What it cannot print goes
back to its place. If pq is killed before it has removed what it has printed, or
loses the connection, these items come back within a minute.`,
		Example: `  pq pop jobs
  pq pop jobs -n 10 --json --wait 1m
  pq pop --fifo mail --all`,
	}, func([]string) error { return p.run() })

	set := cmd.Flags()
	set.IntVarP(&p.count, "number", "n", 1, "pop up to `N` items")
	set.BoolVar(&p.all, "all", false, "pop until the queue is empty")
	flags.Duration(set, &p.wait, "wait", 0, "wait `DURATION` for each item; else not at all")
	p.addJSON(itemJSON)
	return cmd
}

func (p *popping) run() error {
	cmd := p.cmd
	count, err := flags.OrAll(cmd, "number", p.count, p.all)
	err = cmp.Or(err, flags.CheckWait("wait", p.wait), terminal.Writable(cmd.OutOrStdout()))
	if err != nil {
		return err
	}

	ctx := cmd.Context()
	s, err := p.open(ctx)
	if err != nil {
		return err
	}

	defer s.nc.Close()
	defer interrupt.Say(cmd, "items that it has printed may come back")()

	for n := 0; n < count; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		list, begun, err := p.queue.lease(s, min(count-n, popBatch), p.wait, popLease, "")
		switch {
		case errors.Is(err, client.ErrEmpty) && n > 0:
			return nil
		case err != nil:
			return err
		}

		printed, err := p.printLeased(list, begun, count == 1)
		if err := p.settle(s, list, printed, err); err != nil {
			return err
		}
		n += printed
	}

	return nil
}

const (
	// popBatch is how many items pq pop leases at once.
	popBatch = 500
	// popLease is the length of these leases. It is printed in halves of it at most.
	popLease = time.Minute
)

// printLeased prints items, and returns how many: until a signal comes, or printing has taken so
// long that the leases of the others may soon be over.
func (p *popping) printLeased(
	list []*client.Delivery, begun time.Time, only bool,
) (printed int, err error) {
	for i, d := range list {
		if i > 0 && (p.cmd.Context().Err() != nil || time.Since(begun) > popLease/2) {
			return i, nil
		}
		if err := p.printItem(newItem(&p.queue, &d.Item), only); err != nil {
			return i, err
		}
	}

	return len(list), nil
}

// settle acknowledges the items that were printed, and gives the others back: printErr is why one
// could not be. If the reader has gone, nobody knows what it has read, so all go back.
func (p *popping) settle(s *session, list []*client.Delivery, printed int, printErr error) error {
	kept := printed
	if terminal.NoReader(p.cmd.OutOrStdout(), false) {
		kept, printErr = 0, cmp.Or(printErr, errNoReader)
	}

	lost, why := 0, error(nil)
	for _, err := range s.client.AckAll(s.finishing(), list[:kept]...) {
		if err != nil {
			lost, why = lost+1, err
		}
	}

	report := giveBack(s, list[kept:])

	switch {
	case lost > 0:
		why = s.explain(why, "they may have been removed")
		return fmt.Errorf("%s printed, but not acknowledged: they may come back within %v: %w",
			items(int64(lost), ""), popLease, why)
	case printErr == nil:
		return nil
	case printed > kept:
		report += ", including those that were printed, because perhaps nobody has read them: "
		report += items(int64(printed), "")
	}

	return fmt.Errorf("cannot print (%w): %s", printErr, report)
}

// giveBack returns items to the queue, uncounted, and says in words how that went.
func giveBack(s *session, list []*client.Delivery) string {
	var group errgroup.Group
	group.SetLimit(32)
	for _, d := range list {
		group.Go(func() error { return d.Snooze(s.finishing(), 0) })
	}

	report := items(int64(len(list)), "") + " went back"
	if group.Wait() != nil {
		report += fmt.Sprintf(", or will within %v", popLease)
	}

	return report
}
