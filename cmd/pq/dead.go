package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

func newDead(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a, verb: subjects.Items}, dead: true}
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
		if len(args) == 0 {
			return b.listDead()
		}
		b.name = args[0]
		if err := b.check(); err != nil {
			return err
		}
		return b.listDead()
	}
	b.addFilters(cmd)
	return cmd
}

// listDead prints dead letters.
func (b *browsing) listDead() error {
	end, err := b.begin()
	if err != nil {
		return err
	}
	defer end()

	queues, err := b.deadLetterQueues()
	if err != nil {
		return b.s.outdated(b.verb, b.kind(), b.s.explain(err, ""))
	}

	o := b.options
	if b.name != "" {
		o.Headers[subjects.HeaderDeadQueue] = b.name
	}
	if !b.json {
		o.ValueBytes = shownValue
	}
	for i, q := range queues {
		heading := ""
		if terminal.Is(b.cmd.OutOrStdout()) {
			heading = q.name + ":\n" // which has these ids
		}
		after, err := b.walk(q, o, func(it *client.StoredItem) string {
			defer func() { heading = "" }()
			return heading + b.deadRow(q, it)
		})
		if err != nil {
			return err
		}
		if stderr := b.cmd.ErrOrStderr(); (after != "" || b.left == 0 && i < len(queues)-1) && terminal.Is(stderr) {
			b.bar.Clear()
			_, err := fmt.Fprintln(stderr, "pq: there may be more: --all prints them")
			return err
		}
	}

	if b.found == 0 && b.name != "" {
		b.s.use(&b.queue)
		b.s.noteUnused(b.s.usable)
	}
	return nil
}

// deadLetterQueues returns the queues with the dead letters of the queue that is named, or else those
// in use that are named like one, or by the settings of a queue.
func (b *browsing) deadLetterQueues() ([]*queue, error) {
	ctx := b.s.usable
	named := func(fifo bool, name string) *queue {
		return &queue{app: b.app, cmd: b.cmd, verb: b.verb, fifo: fifo, name: name}
	}
	if b.name != "" {
		info, err := target.New(b.s.client, b.fifo, b.name).Info(ctx)
		if err != nil {
			return nil, err
		}
		return []*queue{named(b.fifo, info.Settings.DeadLetterQueue(b.name))}, nil
	}

	all, err := b.s.queues(ctx, b.fifo)
	if err != nil {
		return nil, err
	}
	kindOf := func(q counted) bool { return q.Kind == kindNames[subjects.FIFO] }
	infos := make([]*client.QueueInfo, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, q := range all {
		group.Go(func() (err error) {
			infos[i], err = target.New(b.s.client, kindOf(q), q.Queue).Info(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}

	chosen := map[queue]bool{}
	for i, q := range all {
		chosen[queue{fifo: kindOf(q), name: infos[i].Settings.DeadLetter}] = true
	}
	var queues []*queue
	for _, q := range all {
		if strings.HasSuffix(q.Queue, settings.DeadSuffix) || chosen[queue{fifo: kindOf(q), name: q.Queue}] {
			queues = append(queues, named(kindOf(q), q.Queue))
		}
	}
	return queues, nil
}

// deadRow returns what there is to say about a dead letter: for people some lines as wide as their
// terminal, for programs one with tabs.
func (b *browsing) deadRow(q *queue, it *client.StoredItem) string {
	info, _ := subjects.ParseItemHeaders(it.Headers)
	d := info.DeadLetter
	if d == nil { // its headers had no room in the reply
		d = &subjects.DeadLetter{Reason: it.Reason}
	}
	failure, value := terminal.Plain(d.Error), terminal.Plain(string(it.Value))
	if it.Code != 0 {
		value = it.Text
	}

	width := terminal.Width(b.cmd.OutOrStdout())
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
