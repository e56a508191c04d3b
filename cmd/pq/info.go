package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
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
		Long: `Print how many items of a queue are ready, leased and delayed, how many
finished jobs it keeps, how old the oldest item is, when something falls due
next, the schedules and the settings, what the bridges have counted in the last
hour and day, and how many pops wait.`,
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
		text += scheduleLines(list, err)

		traffic, err := discovery.Traffic(ctx, s.nc, s.grammar, q.kind(), q.name)
		text += trafficLines(&traffic, err) + terminal.AsOf(q.cmd.OutOrStdout())
		return reply{text, withTraffic(info.Encode(), &traffic, err)}, nil
	})
}

// traffic is what became of items in some time, as pq info --json prints it.
type traffic struct {
	Pushed int64 `json:"pushed"`
	Popped int64 `json:"popped"`
	Failed int64 `json:"failed"`
	Dead   int64 `json:"dead"`
}

func trafficOf(t *subjects.Traffic) traffic { return traffic{t.In, t.Out, t.Failed, t.Dead} }

// ends are how items end: a failed delivery, done or dead.
func (t traffic) ends() [3]int64 { return [3]int64{t.Failed, t.Popped, t.Dead} }

func (t traffic) String() string {
	return fmt.Sprintf("%s pushed, %s popped, %s failed, %s dead", terminal.Grouped(t.Pushed),
		terminal.Grouped(t.Popped), terminal.Grouped(t.Failed), terminal.Grouped(t.Dead))
}

// trafficLines says what the bridges have counted, or why it cannot be read.
func trafficLines(t *subjects.QueueTraffic, err error) string {
	if err != nil {
		return infoLines("traffic", "cannot be read: "+err.Error())
	}
	text := infoLines("waiting", terminal.Plural(t.Waiters, "pop")) +
		infoLines("last hour", trafficOf(&t.Hour).String()) +
		infoLines("last day", trafficOf(&t.Day).String())
	if !t.Since.IsZero() {
		text += infoLines("counted", "since "+timeOrDash(t.Since))
	}
	return text
}

// withTraffic adds what the bridges have counted to a JSON object, unless that is not known.
func withTraffic(object []byte, t *subjects.QueueTraffic, err error) []byte {
	if err != nil {
		return object
	}
	member, _ := json.Marshal(struct {
		Waiting int       `json:"waiting"`
		Hour    traffic   `json:"hour"`
		Day     traffic   `json:"day"`
		Since   time.Time `json:"since,omitzero"`
	}{t.Waiters, trafficOf(&t.Hour), trafficOf(&t.Day), t.Since})
	return fmt.Appendf(bytes.TrimSuffix(object, []byte("}")), `,"traffic":%s}`, member)
}

// scheduleLines names the schedules of a queue, or says why they cannot be read: a user may read
// one but not the other.
func scheduleLines(list []*client.ScheduleRecord, err error) string {
	if err != nil {
		return infoLines("schedules", "cannot be read: "+err.Error())
	}

	var texts []string
	for _, r := range list {
		next := "next " + timeOrDash(r.Next)
		if r.Paused {
			next = "paused"
		}
		texts = append(texts, fmt.Sprintf("%s: %s, %s", r.ID, r.When(), next))
	}
	return infoLines("schedules", texts...)
}

// infoLines writes a line for each text about a queue that is not "". The first has the name. Texts
// may come from others.
func infoLines(name string, texts ...string) (lines string) {
	for _, text := range texts {
		if text != "" {
			lines += fmt.Sprintf("%-12s%s\n", name, terminal.Plain(text))
			name = ""
		}
	}
	return lines
}

// infoText describes a queue for people.
func infoText(i *client.QueueInfo, now time.Time) string {
	text := infoLines("ready", terminal.Grouped(i.Ready)) +
		infoLines("leased", terminal.Grouped(i.Leased)) +
		infoLines("delayed", terminal.Grouped(i.Delayed))
	if i.Finished > 0 {
		text += infoLines("finished", terminal.Grouped(i.Finished))
	}
	if i.OldestAge != nil {
		text += infoLines("oldest", terminal.InWords(*i.OldestAge))
	}
	if i.NextDue != nil {
		text += infoLines("next due", "in "+terminal.InWords(max(i.NextDue.Sub(now), 0)))
	}

	text += priorityLine(i, 80-12) + groupLine(i, 80-12)
	if i.GroupsAtLimit > 0 {
		text += infoLines("passed over", terminal.Plural(i.GroupsAtLimit, "group"))
	}

	var consumers []string
	for j := range i.Consumers {
		consumers = append(consumers, consumerText(&i.Consumers[j]))
	}
	text += infoLines("consumers", consumers...)
	if i.Source != nil {
		text += infoLines("source", i.Source.String())
	}
	return text + infoLines("settings", subjects.SettingTexts(&i.Settings)...)
}

// priorityLine lists how many items there are of the first priorities, in up to width columns.
func priorityLine(i *client.QueueInfo, width int) string {
	var counts []string
	for _, p := range i.Priorities {
		counts = append(counts, fmt.Sprintf("%d: %s", p.Priority, terminal.Grouped(p.Count)))
	}
	return infoLines("priorities", firstOf(counts, width, false))
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

	return infoLines("groups", firstOf(counts, width, i.GroupsMore))
}

// consumerText says what a consumer that a program written for JetStream has created is like,
// without what it leaves to the settings of the queue.
func consumerText(c *subjects.QueueConsumer) string {
	text := c.Name + ": " + c.Order
	for _, set := range []struct {
		is   bool
		text string
	}{
		{c.AckWait > 0, fmt.Sprintf("ack_wait=%v", c.AckWait)},
		{c.MaxDeliver > 0, fmt.Sprintf("max_deliver=%d", c.MaxDeliver)},
		{c.MaxAckPending > 0, fmt.Sprintf("max_ack_pending=%d", c.MaxAckPending)},
		{c.Description != "", c.Description},
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

	if others && line != "" {
		line += more
	}
	return line
}
