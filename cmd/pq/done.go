package main

import (
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func newDone(a *app) *cobra.Command {
	b := &browsing{queue: queue{app: a}}
	b.options.State = client.Done
	var slowest bool
	var by string
	cmd := b.command(&cobra.Command{
		Use:        "done QUEUE",
		SuggestFor: []string{"finished", "completed", "results", "history"},
		Short:      "List finished jobs, newest first",
		Long: `List the finished jobs that a queue keeps, newest first: the id, how long ago it
was done, how long that took, how many deliveries it had, who did it, and the
beginning of what it returned. A job is kept if its push or the setting keep of
the queue said so. pq redrive QUEUE ID runs one again.`,
		Example: `  pq done jobs --limit 20
  pq done jobs --slowest
  pq done jobs --by holder`,
	}, func([]string) error {
		switch group := target.Groups[by]; {
		case by != "" && group == nil:
			return exit.Usagef("--by is %q: want holder or type", by)
		case by != "" && (slowest || b.all || b.cmd.Flags().Changed("limit")):
			return exit.Usagef("--by sums up the newest %s: leave out --by, or leave out --limit, "+
				"--all and --slowest", terminal.Plural(target.NewestJobs, "finished job"))
		case by != "":
			return b.run(func(ctx context.Context, s *session) error {
				return b.listPaces(ctx, s, by)
			})
		case slowest:
			return b.run(b.listSlowest)
		}
		return b.run(b.list)
	})
	b.addFilters(cmd)
	b.addAfter(cmd)
	cmd.Flags().BoolVar(&slowest, "slowest", false,
		"the slowest of the newest 10,000, the slowest first")
	cmd.Flags().StringVar(&by, "by", "", "sum up the newest 1,000 by `WHAT`: holder or type")
	flags.Completes(cmd, "by", "holder", "type")
	return cmd
}

// listPaces prints how long the newest finished jobs took, by what they have in common.
func (b *browsing) listPaces(ctx context.Context, s *session, by string) error {
	o := b.options
	o.Limit, o.ValueBytes = subjects.MaxItems, client.NoValues
	list, err := target.Newest(target.Pages(ctx, o, s.queue.Items))
	if err != nil {
		return err
	}

	out := b.cmd.OutOrStdout()
	t := terminal.NewTable(out, strings.ToUpper(by)+"~", "JOBS>", "MEDIAN>", "95%>")
	var lines []map[string]any
	for _, p := range target.PacesBy(list, target.Groups[by]) {
		t.Row(cmp.Or(p.Name, "-"), p.Jobs, terminal.InWords(p.Median), terminal.InWords(p.P95))
		lines = append(lines, map[string]any{by: p.Name, "jobs": p.Jobs,
			"median_s": p.Median.Seconds(), "p95_s": p.P95.Seconds()})
	}
	if b.json {
		return encodeLines(out, lines)
	}
	b.found = int64(len(list))
	b.noteNothing(ctx, s)
	_, err = io.WriteString(out, t.String())
	return err
}

// listSlowest prints the finished jobs that took longest, of the newest ones.
func (b *browsing) listSlowest(ctx context.Context, s *session) error {
	defer b.bar.Clear()
	o := b.options
	o.Limit, o.State = subjects.MaxItems, client.Done
	pages := target.Pages(ctx, o, s.queue.Items)
	list, err := target.Slowest(pages, func(p client.ItemsPage) {
		b.noteProgress(p.Scanned, len(p.Items))
	})
	if err != nil {
		return err
	}

	b.bar.Clear()
	list = list[:min(len(list), b.left)]
	if b.json {
		printed := make([]*item, len(list))
		for i := range list {
			printed[i] = newStored(&b.queue, &list[i])
		}
		return encodeLines(b.cmd.OutOrStdout(), printed)
	}

	row := b.tableRow()
	for i := range list {
		row(&list[i])
	}
	b.noteNothing(ctx, s)
	_, err = io.WriteString(b.cmd.OutOrStdout(), b.table.Flush())
	return err
}

var doneColumns = []string{"ID", "AGE>", "TOOK>", "TRY>", "HOLDER~", "RESULT~"}

// doneRow is itemRow for finished jobs.
func doneRow(it *client.StoredItem, people, _ bool, now time.Time) []any {
	at, result := time.Time{}, it.Text // why it cannot be read
	if it.Done != nil {
		at, result = it.FinishedAt, string(it.Result)
	}
	took := target.Took(it)
	if people {
		age, lasted := "—", "—"
		if took != nil {
			lasted = terminal.InWords(*took)
		}
		if it.Done != nil {
			age = terminal.Short(now.Sub(at))
		}
		return []any{it.ID, age, lasted, it.Deliveries, it.Holder, result}
	}

	lasted := "-"
	if took != nil {
		lasted = strconv.FormatFloat(took.Seconds(), 'f', -1, 64)
	}
	return []any{it.ID, cmp.Or(timeText(at), "-"), lasted, it.Deliveries, cmp.Or(it.Holder, "-"),
		result}
}
