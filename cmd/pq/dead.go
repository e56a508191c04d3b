package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

func newDead(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "dead [QUEUE]",
		Short: "List dead letters, of one queue or of all",
		Long: `List the dead letters of a queue, or of all: the id in the dead-letter queue,
how long they are there, why, the last error, and the beginning of the value.
Into a pipe, tabs separate id, dead-letter queue, queue, reason, error,
deliveries, time and value. pq redrive sends them back, pq rm removes them.`,
		Example: `  pq dead jobs
  pq dead jobs --match acme --all | pq redrive jobs-dead -`,
		Args: arguments,
	}
	b.addFlags(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			b.name = args[0]
			if err := b.check(); err != nil {
				return err
			}
		}
		return b.run(b.listDead)
	}
	b.addFilters(cmd)
	return cmd
}

// listDead prints the dead letters of the queue that is named, or of all.
func (b *browsing) listDead(ctx context.Context, s *session) error {
	queues, err := b.deadLetterQueues(ctx, s)
	if err != nil {
		return err
	}
	if b.name != "" {
		b.options.Headers[subjects.HeaderDeadQueue] = b.name
	}

	width := terminal.Width(b.cmd.OutOrStdout())
	for i, q := range queues {
		heading := ""
		if width > 0 {
			heading = q.name + ":\n" // which has these ids
		}
		after, err := b.walk(ctx, s, q, func(it *client.StoredItem) string {
			row := deadRow(q, it, width)
			if row != "" {
				row, heading = heading+row, ""
			}
			return row
		})
		if err != nil {
			return err
		}
		if after != "" || b.left == 0 && i < len(queues)-1 {
			b.noteMore("--all prints them")
			return nil
		}
	}

	if b.found == 0 && b.name != "" {
		s.noteUnused(ctx)
	}
	return nil
}

// deadLetterQueues returns the queues with the dead letters of the queue that is named, or else those
// in use that are named like one, or by the settings of a queue.
func (b *browsing) deadLetterQueues(ctx context.Context, s *session) ([]*queue, error) {
	if b.name != "" {
		info, err := s.queue.Info(ctx)
		if err != nil {
			return nil, err
		}
		return []*queue{{fifo: b.fifo, name: info.Settings.DeadLetterQueue(b.name)}}, nil
	}

	list, err := s.queues(ctx, b.fifo)
	if err != nil {
		return nil, err
	}
	infos, err := s.infos(ctx, list)
	if err != nil {
		return nil, err
	}

	chosen := map[queue]bool{}
	for i, q := range list {
		chosen[queue{fifo: q.isFIFO(), name: infos[i].Settings.DeadLetter}] = true
	}
	var queues []*queue
	for _, q := range list {
		named := queue{fifo: q.isFIFO(), name: q.Queue}
		if strings.HasSuffix(q.Queue, settings.DeadSuffix) || chosen[named] {
			queues = append(queues, &named)
		}
	}
	return queues, nil
}

// deadRow returns what there is to say about a dead letter, "" for what is none: for people some lines
// as wide as their terminal, for programs one with tabs.
func deadRow(q *queue, it *client.StoredItem, width int) string {
	info, _ := subjects.ParseItemHeaders(it.Headers)
	d := info.DeadLetter
	switch {
	case d == nil && !it.HeadersCut:
		return ""
	case d == nil: // its headers had no room in the reply
		d = &subjects.DeadLetter{Reason: it.Reason}
	}

	failure, value := terminal.Plain(d.Error), shown(it)
	if width == 0 {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", it.ID, q.name, d.Queue, terminal.Plain(d.Reason), failure,
			d.Deliveries, cmp.Or(timeText(d.At), "-"), value)
	}

	why := terminal.Plain((&deadLetter{Reason: d.Reason, Deliveries: d.Deliveries}).why())
	lines := terminal.Clip(fmt.Sprintf("%s  %4s  %s: %s", it.ID, terminal.Short(time.Since(d.At)), d.Queue, why), width) + "\n"
	for _, text := range []string{failure, value} {
		if text != "" {
			lines += terminal.Clip("    "+text, width) + "\n"
		}
	}
	return lines
}
