package main

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

func newBusy(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a}}
	cmd := b.command(&cobra.Command{
		Use:   "busy [QUEUE]",
		Short: "List what is leased, and who holds it",
		Long: `List the leased items of a queue, or of all, longest held first: the id, who
holds it and for how long, how much of the lease is left, the number of the
delivery, and the progress. pq release ends leases.`,
		Example: `  pq busy
  pq busy jobs --limit 1 | pq release jobs -`,
	}, func([]string) error { return b.run(b.listBusy) })
	b.addFilters(cmd)
	return cmd
}

// held is a leased item and its queue.
type held struct {
	queue *queue
	client.StoredItem
}

// mostHeld bounds how many items --all prints, which it has to keep for that.
const mostHeld = 100_000

// listBusy prints the leased items of the queue that is named, or of all.
func (b *browsing) listBusy(ctx context.Context, s *session) error {
	list, err := b.listed(ctx, s)
	if err != nil {
		return err
	}

	idle := func(q counted) bool { return b.name == "" && q.Leased == 0 }
	list = slices.DeleteFunc(list, idle)

	longest, err := b.longestHeld(ctx, s, list)
	switch {
	case err != nil:
		return err
	case b.found > int64(len(longest)):
		b.noteMore("--all prints them")
	case b.scanned == 0 && b.name != "":
		s.noteUnused(ctx)
	}

	return b.printHeld(longest, time.Now())
}

// longestHeld returns the leased items to print: those held for the longest.
func (b *browsing) longestHeld(
	ctx context.Context, s *session, list []counted,
) (longest []held, err error) {
	defer b.bar.Clear()
	b.options.State = client.Leased
	for _, q := range list {
		of := &queue{name: q.Queue, fifo: q.isFIFO()}
		items := target.Queue(s.client, of.fifo, of.name).Items
		for page, err := range target.Pages(ctx, b.options, items) {
			if err != nil {
				return nil, err
			}
			for _, it := range page.Items {
				longest = append(longest, held{of, it})
			}
			slices.SortStableFunc(longest,
				func(a, b held) int { return timeOf(a.LeasedAt).Compare(timeOf(b.LeasedAt)) })
			longest = longest[:min(len(longest), b.left, mostHeld)]
			b.noteProgress(page.Scanned, len(page.Items))
		}
	}

	return longest, nil
}

func (b *browsing) printHeld(list []held, now time.Time) error {
	out := b.cmd.OutOrStdout()
	if b.json {
		items := make([]*item, len(list))
		for i := range list {
			items[i] = newStored(list[i].queue, &list[i].StoredItem)
		}
		return encodeLines(out, items)
	}

	t := terminal.NewTable(out, "ID", "QUEUE~", "HOLDER~", "HELD>", "LEFT>", "TRY>", "PROGRESS~")
	for _, h := range list {
		from, to, none := timeOf(h.LeasedAt), timeOf(h.Due), "-"
		since, until := timeText(from), timeText(to)
		if terminal.Is(out) {
			since, until, none = terminal.Short(now.Sub(from)), terminal.Short(to.Sub(now)), "—"
		}
		t.Row(h.ID, h.queue.name, cmp.Or(h.Holder, none), cmp.Or(since, none),
			cmp.Or(until, none), h.Deliveries, cmp.Or(string(h.Progress), none))
	}

	_, err := io.WriteString(out, t.String())
	return err
}
