package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// leasing is the command line of pq lease.
type leasing struct {
	queue
	wait, ackWait time.Duration
	holder        string
}

func newLease(a *app) *cobra.Command {
	l := &leasing{queue: queue{app: a, maxHelp: "lease the last item: largest priority, newest"}}
	cmd := l.command(&cobra.Command{
		Use:   "lease QUEUE",
		Short: "Take the first item for a time, and print it with a receipt",
		Long: `Lease the first item of a queue. Print a line with a receipt, for pq ack and the
like, and then the value as it is. No other worker gets the item until the lease
is over; then it comes back, unless it was acknowledged. pq work does all this.`,
		Example: `  pq lease jobs --ack-wait 5m
  pq lease jobs --wait 1m --holder nightly-report --json`,
	}, func([]string) error { return l.run() })

	set := cmd.Flags()
	flags.Duration(set, &l.ackWait, "ack-wait", 0,
		"lease for `DURATION`; else as pq config says, or 30s")
	flags.Duration(set, &l.wait, "wait", 0, "wait `DURATION` for an item; else not at all")
	set.StringVar(&l.holder, "holder", "", "`NAME` for pq busy to show; else that of the process")
	l.addJSON(itemJSON)
	return cmd
}

func (l *leasing) run() error {
	cmd := l.cmd
	err := cmp.Or(flags.CheckWait("wait", l.wait), flags.CheckAckWait(l.ackWait),
		terminal.Writable(cmd.OutOrStdout()))
	if err != nil {
		return err
	}

	if err := settings.CheckHolder(l.holder); err != nil {
		return exit.Usagef("--holder: %w", err)
	}

	s, err := l.open(cmd.Context())
	if err != nil {
		return err
	}

	defer s.nc.Close()
	defer interrupt.Say(cmd, "an item may stay leased until its lease ends")()
	list, _, err := l.queue.lease(s, 1, l.wait, l.ackWait, l.holder)
	if err != nil {
		return err
	}

	d := list[0]
	it := newItem(&l.queue, &d.Item)
	it.Receipt, it.Deliveries, it.LeaseUntil = d.AckSubject(), d.Deliveries, timeText(d.Until)
	if err := l.printItem(it, true); err != nil {
		became := "it was given back"
		if failed := d.Snooze(s.finishing(), 0); failed != nil {
			became = "it comes back when the lease is over"
		}
		return fmt.Errorf("cannot print the leased item (%w): %s", err, became)
	}

	return nil
}

// newSettle makes a command that acknowledges an item in some way.
func newSettle(
	a *app, cmd *cobra.Command, settle func(context.Context, *client.Delivery, []string) error,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.checkReceipt(args[0]); err != nil {
			return err
		}

		do := func(ctx context.Context, s *session) (none struct{}, err error) {
			err = settle(ctx, s.client.Delivery(args[0]), args[1:])
			if errors.Is(err, client.ErrLeaseLost) {
				err = fmt.Errorf("%w: it was acknowledged, given back or given up, "+
					"or another worker has it", err)
			}
			return none, err
		}
		_, err := ask(&queue{app: a, cmd: cmd}, "it may have counted: try again", do)
		return err
	}

	return cmd
}

// importedReply begins the reply subjects that a NATS server makes up for clients of other
// accounts.
const importedReply = "_R_."

// checkReceipt refuses subjects on which there are no acknowledgements.
func (a *app) checkReceipt(receipt string) error {
	imported := strings.HasPrefix(receipt, importedReply)
	if imported && !strings.ContainsAny(receipt, "*> \t\r\n") {
		return nil
	}

	r, err := a.grammar.Parse(receipt)
	if err != nil || r.Verb != subjects.AckLease {
		return exit.Usagef("%q is not a receipt: want one that pq lease printed, such as %s",
			subjects.HideTokens(receipt),
			a.grammar.Ack(subjects.Priority, "jobs", "TOKEN"))
	}

	return nil
}

// receiptExample is a receipt as pq lease prints it.
const receiptExample = "pq.jobs.ack.AQAABmDC4gd9-J1RAQBh"

func newAck(a *app) *cobra.Command {
	return newSettle(a, &cobra.Command{
		Use:     "ack RECEIPT",
		Short:   "Acknowledge an item by its receipt of pq lease: it is done, and removed",
		Example: "  pq ack " + receiptExample,
	}, func(ctx context.Context, d *client.Delivery, _ []string) error { return d.Ack(ctx) })
}

func newNak(a *app) *cobra.Command {
	var delay time.Duration
	var reason string
	var snooze bool
	var cmd *cobra.Command
	cmd = newSettle(a, &cobra.Command{
		Use:   "nak RECEIPT",
		Short: "Give a leased item back",
		Long: `Give an item back, by the receipt that pq lease printed: it comes to its old
place, or after its last delivery into the dead-letter queue.`,
		Example: "  pq nak " + receiptExample + " --delay 1m --reason \"disk full\"",
	}, func(ctx context.Context, d *client.Delivery, _ []string) error {
		if snooze {
			return d.Snooze(ctx, delay)
		}
		if !cmd.Flags().Changed("delay") {
			delay = client.Backoff
		}
		return d.Nak(ctx, delay, client.Reason(reason))
	})

	set := cmd.Flags()
	flags.Duration(set, &delay, "delay", 0, "after `DURATION`; else as the queue's backoff says")
	set.StringVar(&reason, "reason", "", "`TEXT` to keep if the item becomes a dead letter")
	set.BoolVar(&snooze, "snooze", false, "do not count the delivery; at once without --delay")

	cmd.PreRunE = func(*cobra.Command, []string) error {
		if snooze && reason != "" {
			return exit.Usagef("--reason is for failures, and --snooze is not one: " +
				"leave out one of them")
		}
		return flags.InBounds("delay", delay, 0, settings.MaxDelay)
	}
	return cmd
}

func newTerm(a *app) *cobra.Command {
	return newSettle(a, &cobra.Command{
		Use:     "term RECEIPT [REASON]",
		Short:   "Give a leased item up: it moves to the dead-letter queue",
		Example: "  pq term " + receiptExample + " \"no such user\"",
	}, func(ctx context.Context, d *client.Delivery, reason []string) error {
		return d.Term(ctx, strings.Join(reason, ""))
	})
}

func newExtend(a *app) *cobra.Command {
	var cmd *cobra.Command
	cmd = newSettle(a, &cobra.Command{
		Use:   "extend RECEIPT",
		Short: "Restart the lease of an item",
		Long: `Restart a lease, with the length that it had, by the receipt that pq lease
printed. Print when it ends.`,
		Example: "  pq extend " + receiptExample,
	}, func(ctx context.Context, d *client.Delivery, _ []string) error {
		until, err := d.Extend(ctx)
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), timeText(until))
		}
		return err
	})
	return cmd
}
