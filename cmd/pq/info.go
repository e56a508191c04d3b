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
	q := &queue{app: a}
	cmd := q.request(&cobra.Command{
		Use:     "len QUEUE",
		Short:   "Print the number of items in a queue",
		Example: "  pq len --fifo mail --json",
	}, "", func(ctx context.Context, s *session, _ []string) (reply, error) {
		n, err := s.queue.Len(ctx)
		return reply{fmt.Sprintln(n), subjects.Length{Queue: q.name, Len: n}}, err
	})
	cmd.Flag("json").Usage = "print a line of JSON with queue and len"
	return cmd
}

func newInfo(a *app) *cobra.Command {
	q := &queue{app: a}
	return q.request(&cobra.Command{
		Use:        "info QUEUE",
		SuggestFor: []string{"status", "stats", "show", "describe"},
		Short:      "Print what is known about a queue",
		Long: `Print how many items of a queue are ready, leased and delayed, how old the
oldest is, when something falls due next, the schedules and the settings.`,
		Example: "  pq info --fifo mail --json",
	}, "", func(ctx context.Context, s *session, _ []string) (reply, error) {
		info, err := s.queue.Info(ctx)
		if err != nil {
			return reply{}, err
		}
		text := infoText(info, time.Now())
		list, err := s.queue.Schedules(ctx)
		if isUnused(info) && len(list) == 0 {
			s.noteUnused(ctx)
		}
		text += scheduleLines(list, err) + terminal.AsOf(q.cmd.OutOrStdout())
		return reply{text, info.Encode()}, nil
	})
}

// scheduleLines names the schedules of a queue, or says why they cannot be read: a user may read
// one but not the other.
func scheduleLines(list []*client.ScheduleRecord, err error) string {
	if err != nil {
		return infoLine("schedules", "cannot be read: "+err.Error())
	}

	text, name := "", "schedules"
	for _, r := range list {
		next := "next " + timeOrDash(r.Next)
		if r.Paused {
			next = "paused"
		}
		text += infoLine(name, terminal.Plain(fmt.Sprintf("%s: %s, %s", r.ID, r.When(), next)))
		name = ""
	}

	return text
}

func infoLine(name, text string) string { return fmt.Sprintf("%-12s%s\n", name, text) }

// infoText writes what is known about a queue for people.
func infoText(i *client.QueueInfo, now time.Time) string {
	var b strings.Builder
	line := func(name, text string) { b.WriteString(infoLine(name, text)) }

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
		line("passed over", terminal.Plural(i.GroupsAtLimit, "group"))
	}

	name := "consumers"
	for j := range i.Consumers {
		line(name, consumerText(&i.Consumers[j]))
		name = ""
	}

	if i.Source != nil {
		line("source", i.Source.String())
	}

	name = "settings"
	for _, text := range subjects.SettingTexts(&i.Settings) {
		line(name, terminal.Plain(text))
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
		ofA, ofB := i.Groups[a].Ready+i.Groups[a].Leased, i.Groups[b].Ready+i.Groups[b].Leased
		return cmp.Or(cmp.Compare(ofB, ofA), cmp.Compare(a, b))
	})
	var counts []string
	for _, name := range names {
		count := fmt.Sprintf("%s: %s", strings.Trim(strconv.QuoteToASCII(name), `"`),
			terminal.Grouped(i.Groups[name].Ready))
		if leased := i.Groups[name].Leased; leased > 0 {
			count += fmt.Sprintf(" (%s leased)", terminal.Grouped(leased))
		}
		counts = append(counts, count)
	}

	return firstOf(counts, width, i.GroupsMore)
}

// consumerText says what a consumer that a program written for JetStream has created is like,
// without what it leaves to the settings of the queue.
func consumerText(c *client.QueueConsumer) string {
	text := terminal.Plain(c.Name) + ": " + c.Order
	for _, set := range []struct {
		is   bool
		text string
	}{
		{c.AckWait > 0, fmt.Sprintf("ack_wait=%v", c.AckWait)},
		{c.MaxDeliver > 0, fmt.Sprintf("max_deliver=%d", c.MaxDeliver)},
		{c.MaxAckPending > 0, fmt.Sprintf("max_ack_pending=%d", c.MaxAckPending)},
		{c.Description != "", terminal.Plain(c.Description)},
	} {
		if set.is {
			text += ", " + set.text
		}
	}

	return text
}

// firstOf lists as many texts as fit into width columns, and says that there are others.
func firstOf(texts []string, width int, others bool) string {
	const more = " and others"
	line := ""
	for n, text := range texts {
		if n > 0 && len(line)+len(", ")+len(text)+len(more) > width {
			return line + more
		}
		line = strings.TrimPrefix(line+", "+text, ", ")
	}

	if others {
		line += more
	}

	return line
}
