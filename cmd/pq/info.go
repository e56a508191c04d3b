package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func newLen(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Len}
	cmd := q.request(&cobra.Command{
		Use:   "len QUEUE",
		Short: "Print the number of items",
		Long:  "Print the number of items in a queue.",
		Example: `  pq len jobs
  pq len --fifo mail --json`,
	}, "", func(ctx context.Context, s *session, _ []string) (reply, error) {
		n, err := s.queue.Len(ctx)
		if err == nil && n == 0 && terminal.Is(q.cmd.ErrOrStderr()) {
			s.noteUnused(ctx)
		}
		return reply{fmt.Sprintln(n), subjects.Length{Queue: q.name, Len: n}}, err
	})
	cmd.Flag("json").Usage = "print a line of JSON with queue and len"
	return cmd
}

func newInfo(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Info}
	return q.request(&cobra.Command{
		Use:   "info QUEUE",
		Short: "Print what is known about a queue",
		Long: `Print how many items of a queue are ready, leased and delayed, how old the
oldest is, when something falls due next, and the settings.`,
		Example: `  pq info jobs
  pq info --fifo mail --json`,
	}, "", func(ctx context.Context, s *session, _ []string) (reply, error) {
		info, err := s.queue.Info(ctx)
		if err != nil {
			return reply{}, err
		}
		if isUnused(info) {
			s.noteUnused(ctx)
		}
		return reply{infoText(info, time.Now()), info.Encode()}, nil
	})
}

// infoText writes what is known about a queue for people.
func infoText(i *client.QueueInfo, now time.Time) string {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-12s%s\n", name, text) }

	line("ready", terminal.Grouped(i.Ready))
	line("leased", terminal.Grouped(i.Leased))
	line("delayed", terminal.Grouped(i.Delayed))
	if i.OldestAge != nil {
		line("oldest", terminal.InWords(*i.OldestAge))
	}
	if i.NextDue != nil {
		line("next due", "in "+terminal.InWords(max(i.NextDue.Sub(now), 0)))
	}
	if len(i.Priorities) > 0 {
		line("priorities", priorityLine(i, 80-12))
	}

	if len(i.Groups) > 0 {
		line("groups", groupLine(i, 80-12))
	}
	if i.GroupsAtLimit > 0 {
		line("at a limit", terminal.Plural(i.GroupsAtLimit, "group"))
	}

	if len(i.Consumers) > 0 {
		line("consumers", consumerLine(i, 80-12))
	}

	if i.Source != nil {
		line("source", i.Source.String())
	}

	name := "settings"
	for _, text := range subjects.SettingTexts(&i.Settings) {
		line(name, text)
		name = ""
	}
	return b.String()
}

// priorityLine lists how many items there are of the first priorities, in up to width columns.
func priorityLine(i *client.QueueInfo, width int) string {
	var counts []string
	for _, p := range i.Priorities {
		counts = append(counts, fmt.Sprintf("%d: %s", p.Priority, terminal.Grouped(p.Count)))
	}
	return firstOf(counts, width, false)
}

// groupLine lists how many ready items the groups with the most have, in up to width columns, and
// how many are leased.
func groupLine(i *client.QueueInfo, width int) string {
	names := slices.SortedFunc(maps.Keys(i.Groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(i.Groups[b].Ready+i.Groups[b].Leased, i.Groups[a].Ready+i.Groups[a].Leased), cmp.Compare(a, b))
	})
	var counts []string
	for _, name := range names {
		count := fmt.Sprintf("%s: %s", strings.Trim(strconv.QuoteToASCII(name), `"`), terminal.Grouped(i.Groups[name].Ready))
		if leased := i.Groups[name].Leased; leased > 0 {
			count += fmt.Sprintf(" (%s leased)", terminal.Grouped(leased))
		}
		counts = append(counts, count)
	}
	return firstOf(counts, width, i.GroupsMore)
}

// consumerLine lists the consumers of JetStream's programs in up to width columns.
func consumerLine(i *client.QueueInfo, width int) string {
	var names []string
	for _, c := range i.Consumers {
		names = append(names, terminal.Plain(c.Name))
	}
	return firstOf(names, width, false)
}

// firstOf lists as many texts as fit into width columns, and says how many more there are: with
// unknown, that and others.
func firstOf(texts []string, width int, unknown bool) string {
	const more = len(" and 1,000 more")
	line := ""
	for n, text := range texts {
		if n > 0 {
			text = line + ", " + text
		}
		if left := terminal.Grouped(int64(len(texts) - n)); n > 0 && len(text)+more > width {
			if unknown {
				return line + " and others"
			}
			return fmt.Sprintf("%s and %s more", line, left)
		}
		line = text
	}
	if unknown {
		line += " and others"
	}
	return line
}
