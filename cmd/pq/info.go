package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func newInfo(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Info}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info QUEUE",
		Short: "Print what is known about a queue",
		Long: `Print how many items of a queue are ready, leased and delayed, how old the
oldest is, when something falls due next, and the settings.`,
		Example: `  pq info jobs
  pq info --fifo mail --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			return q.printInfo(cmd, asJSON)
		},
	}

	q.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the protocol defines it")
	return cmd
}

func (q *queue) printInfo(cmd *cobra.Command, asJSON bool) error {
	if err := q.check(false); err != nil {
		return err
	}

	info, err := ask(cmd, q, "", func(ctx context.Context, s *session) (*client.QueueInfo, error) {
		info, err := s.queue.Info(ctx)
		if err == nil && isUnused(info) {
			s.noteUnused(ctx, cmd, q)
		}
		return info, err
	})
	if err != nil {
		return err
	}

	if asJSON {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", info.Encode())
		return err
	}
	return writeInfo(cmd.OutOrStdout(), info, time.Now())
}

// writeInfo writes what is known about a queue for people.
func writeInfo(out io.Writer, i *client.QueueInfo, now time.Time) error {
	var b strings.Builder
	line := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "%-12s%s\n", name, fmt.Sprintf(format, values...))
	}

	line("ready", "%s", terminal.Grouped(i.Ready))
	line("leased", "%s", terminal.Grouped(i.Leased))
	line("delayed", "%s", terminal.Grouped(i.Delayed))
	if i.OldestAge != nil {
		line("oldest", "%s", terminal.InWords(*i.OldestAge))
	}
	if i.NextDue != nil {
		line("next due", "in %s", terminal.InWords(max(i.NextDue.Sub(now), 0)))
	}
	if len(i.Priorities) > 0 {
		line("priorities", "%s", priorityLine(i, 80-12))
	}

	name := "settings"
	for _, text := range subjects.SettingTexts(&i.Settings) {
		line(name, "%s", text)
		name = ""
	}

	_, err := io.WriteString(out, b.String())
	return err
}

// priorityLine lists how many items there are of the first priorities, in up to width columns.
func priorityLine(i *client.QueueInfo, width int) string {
	const more = len(" and 1,000 more")
	line := ""
	for n, p := range i.Priorities {
		next := fmt.Sprintf("%d: %s", p.Priority, terminal.Grouped(p.Count))
		if n > 0 {
			next = line + ", " + next
		}
		if len(next)+more > width {
			return fmt.Sprintf("%s and %s more", line, terminal.Grouped(int64(len(i.Priorities)-n)))
		}
		line = next
	}
	return line
}
