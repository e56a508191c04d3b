package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

func newBusy(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "busy [QUEUE]",
		Short: "List what is leased, and who holds it",
		Long: `List the leased items of a queue, or of all, those that are held for the longest
first: who holds them, for how long, how long the lease still is, and the number
of the delivery. Into a pipe, tabs separate id, kind and name of the queue,
holder, since when, until when, and delivery. pq release ends leases.`,
		Example: `  pq busy
  pq busy jobs --limit 1 | pq release jobs -`,
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
		return b.run(b.listBusy)
	}
	b.addFilters(cmd)
	return cmd
}

// held is a leased item and its queue.
type held struct {
	queue counted
	item  client.StoredItem
}

// mostHeld bounds how many items --all keeps before it prints them.
const mostHeld = 100_000

// listBusy prints the leased items of the queue that is named, or of all.
func (b *browsing) listBusy(ctx context.Context, s *session) error {
	list := []counted{b.counted()}
	if b.name == "" {
		all, err := s.queues(ctx, b.fifo)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(all, func(q counted) bool { return q.Leased == 0 })
	}

	b.options.State = client.Leased
	if !b.json {
		b.options.ValueBytes = client.NoValues
	}
	longest, err := b.longestHeld(ctx, s, list)
	if err != nil {
		return err
	}
	if err := b.printHeld(longest, time.Now()); err != nil {
		return err
	}

	switch {
	case b.found > int64(len(longest)):
		b.noteMore("--all prints them")
	case b.scanned == 0 && b.name != "":
		s.noteUnused(ctx)
	}
	return nil
}

// longestHeld returns as many leased items as are to be printed, those that are held for the longest.
func (b *browsing) longestHeld(ctx context.Context, s *session, list []counted) (longest []held, err error) {
	defer b.bar.Clear()
	most := min(b.left, mostHeld)
	keep := func() {
		slices.SortStableFunc(longest, func(a, b held) int { return a.since().Compare(b.since()) })
		longest = longest[:min(len(longest), most)]
	}

	for _, q := range list {
		ask := s.pager(ctx, target.New(s.client, q.isFIFO(), q.Queue))
		_, err := target.Pages(b.options, ask, func(page *client.ItemsPage) (bool, error) {
			for _, it := range page.Items {
				longest = append(longest, held{q, it})
			}
			if len(longest) > 2*most {
				keep()
			}
			b.scanned += page.Scanned
			b.found += int64(len(page.Items))
			b.showProgress()
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	keep()
	return longest, nil
}

// since is when the lease began or, if an older bridge does not say, when it is over.
func (h *held) since() time.Time { return timeOf(cmp.Or(h.item.LeasedAt, h.item.Due)) }

func (b *browsing) printHeld(list []held, now time.Time) error {
	out := b.cmd.OutOrStdout()
	if b.json {
		encoder := json.NewEncoder(out)
		for _, h := range list {
			q := &queue{name: h.queue.Queue, fifo: h.queue.isFIFO()}
			if err := encoder.Encode(newStored(q, &h.item)); err != nil {
				return err
			}
		}
		return nil
	}

	people := terminal.Is(out)
	t := terminal.NewTable(out, terminal.Column{Title: "QUEUE", Align: terminal.Snipped},
		terminal.Column{Title: "HOLDER", Align: terminal.Snipped},
		terminal.Column{Title: "HELD", Align: terminal.Right}, terminal.Column{Title: "LEFT", Align: terminal.Right},
		terminal.Column{Title: "TRY", Align: terminal.Right}, terminal.Column{Title: "ID"})
	for _, h := range list {
		it, holder := &h.item, terminal.Plain(h.item.Holder)
		if !people {
			t.Row(it.ID, h.queue.Kind, h.queue.Queue, cmp.Or(holder, "-"),
				cmp.Or(timeText(timeOf(it.LeasedAt)), "-"), cmp.Or(timeText(timeOf(it.Due)), "-"), it.Deliveries)
			continue
		}

		age, left := "—", "—"
		if it.LeasedAt != nil {
			age = terminal.Short(now.Sub(*it.LeasedAt))
		}
		if it.Due != nil {
			left = terminal.Short(it.Due.Sub(now))
		}
		t.Row(h.queue.Queue, cmp.Or(holder, "—"), age, left, it.Deliveries, it.ID)
	}
	if len(list) == 0 && people {
		_, err := fmt.Fprintln(b.cmd.ErrOrStderr(), "pq: nothing is leased")
		return err
	}
	return t.Print()
}
