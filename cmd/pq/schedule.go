package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// newSchedule returns the command whose subcommands work on schedules.
func newSchedule(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "schedule",
		SuggestFor: []string{"cron"},
		Short:      "Push items on a schedule",
		Long: `Have a queue push an item at the times of a cron expression, or at an interval:
add, ls, run, pause, resume, rm. See pq schedule COMMAND --help.`,
		Example: `  pq schedule add jobs nightly report --cron "0 3 * * *" --zone Europe/Berlin
  pq schedule ls`,
	}
	set := func(name, short string) *cobra.Command {
		q := &queue{app: a}
		return q.request(&cobra.Command{
			Use: name + " QUEUE ID", Short: short,
			Example: "  pq schedule " + name + " jobs nightly",
		}, "the schedule may have changed", func(
			ctx context.Context, s *session, args []string,
		) (r reply, err error) {
			switch id := args[0]; name {
			case "run":
				r.json, err = s.queue.RunSchedule(ctx, id)
			case "rm":
				r.json, err = subjects.Removed{Queue: q.name, ID: id}, s.queue.Unschedule(ctx, id)
			default:
				r.json, err = s.queue.PauseSchedule(ctx, id, name == "pause")
			}
			return r, err
		})
	}
	cmd.AddCommand(newScheduleAdd(a), newScheduleList(a),
		set("run", "Push an item of a schedule now"),
		set("pause", "Keep a schedule from pushing items"),
		set("resume", "Let a paused schedule go on"),
		set("rm", "Remove a schedule"))
	return cmd
}

func newScheduleAdd(a *app) *cobra.Command {
	q := &queue{app: a}
	var s client.Schedule
	var priority flags.Priority
	var every, jitter time.Duration
	var headers []string
	var until string
	cmd := q.request(&cobra.Command{
		Use:   "add QUEUE ID [VALUE|-]",
		Short: "Add or replace a schedule",
		Long: `Push an item with VALUE, or with standard input for -, at each time of a
schedule, once, however many bridges there are. A schedule with the same ID is
replaced.`,
		Example: `  pq schedule add jobs nightly report --cron "0 3 * * *" --zone Europe/Berlin
  pq schedule add jobs poll --every 15m --overlap skip --priority -5`,
	}, "the schedule may have been set", func(
		ctx context.Context, at *session, args []string,
	) (_ reply, err error) {
		s.ID, s.Value = args[0], []byte(strings.Join(args[1:], ""))
		if string(s.Value) == "-" {
			if s.Value, err = at.readValue(true); err != nil {
				return reply{}, err
			}
		}
		record, err := at.queue.SetSchedule(ctx, s)
		return reply{text: fmt.Sprintln(timeOrDash(record.Next)), json: record}, err
	})
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		s.Priority = int64(priority)
		s.Every, s.Jitter = schedule.Duration(every), schedule.Duration(jitter)
		if s.Headers, err = headersOf(headers); err != nil {
			return exit.Usage(err)
		}
		if until != "" {
			if s.Until, err = time.Parse(time.RFC3339, until); err != nil {
				return exit.Usagef("--until: want a time such as 2030-01-02T15:04:05Z")
			}
		}
		if (s.Cron == "") == (s.Every == 0) {
			const want = `want either --cron or --every, such as --cron "0 3 * * *", or --every 15m`
			return exit.Usagef(want)
		}
		return nil
	}
	set := cmd.Flags()
	set.StringVar(&s.Cron, "cron", "", "`EXPRESSION` of five fields, or @daily and such")
	flags.Duration(set, &every, "every", 0, "push at an interval of `DURATION`")
	set.StringVar(&s.Zone, "zone", "", "time `ZONE` of --cron; UTC by default")
	set.VarP(&priority, "priority", "p", "decimal `PRIORITY` of the items")
	set.StringArrayVarP(&headers, "header", "H", nil,
		"`NAME:VALUE` to store with the items; repeat for more")
	flags.Duration(set, &jitter, "jitter", 0, "push up to `DURATION` later, varying each time")
	set.StringVar(&s.IfMissed, "if-missed", "",
		"`WHAT` of missed times: once (default), skip or all")
	set.StringVar(&s.Overlap, "overlap", "", "`WHAT` if the last is there: allow (default) or skip")
	set.StringVar(&until, "until", "", "`TIME` after which it ends, in RFC 3339")
	flags.Completes(cmd, "if-missed", schedule.Once, schedule.Skip, schedule.All)
	flags.Completes(cmd, "overlap", schedule.Allow, schedule.Skip)
	return cmd
}

// badSchedule begins errors about schedules, before the member.
var badSchedule = schedule.ErrInvalid.Error() + ": "

func newScheduleList(a *app) *cobra.Command {
	q := &queue{app: a}
	cmd := q.command(&cobra.Command{
		Use:   "ls [QUEUE]",
		Short: "List the schedules of a queue or of all",
		Long: `List the schedules of a queue, or of all, the next to fire first: when they
fire, the next and the last time, and how many items were pushed or skipped.`,
		Example: "  pq schedule ls jobs --json",
	}, q.listSchedules)
	q.addJSON("print a line of JSON for each schedule")
	return cmd
}

// scheduled is a schedule and its queue, as --json prints it.
type scheduled struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	*client.ScheduleRecord
}

// listSchedules prints the schedules of the queue that is named, or of all.
func (q *queue) listSchedules([]string) error {
	list, err := ask(q, "", q.schedules)
	switch out := q.cmd.OutOrStdout(); {
	case err != nil:
		return err
	case q.json, len(list) == 0:
		return encodeLines(out, list)
	default:
		return scheduleTable(out, list, time.Now()).Print()
	}
}

// schedules returns the schedules of the queue that is named, or of all, and says so if there are
// none.
func (q *queue) schedules(ctx context.Context, s *session) (all []scheduled, err error) {
	list, err := q.listed(ctx, s)
	if err != nil {
		return nil, err
	}

	records, err := each(ctx, s, list, (*client.Queue).Schedules)
	for i, of := range records {
		for _, r := range of {
			all = append(all, scheduled{list[i].Kind, list[i].Queue, r})
		}
	}

	if err == nil && len(all) == 0 && (q.name == "" || !s.noteUnused(ctx)) {
		q.say("no schedules")
	}

	slices.SortStableFunc(all, func(a, b scheduled) int { return a.due().Compare(b.due()) })
	return all, err
}

// due is when the schedule fires next, and after all times for one that does not.
func (s *scheduled) due() time.Time {
	if s.Paused || s.Next.IsZero() {
		return target.Forever
	}
	return s.Next
}

// scheduleTable is a table of schedules. For people, times are short, and names are cut before
// WHEN.
func scheduleTable(out io.Writer, list []scheduled, now time.Time) *terminal.Table {
	people := terminal.Is(out)
	t := terminal.NewTable(out, "QUEUE~", "ID~", "WHEN~", "NEXT", "LAST>", "FIRED>", "SKIP>")
	for _, r := range list {
		next, last := timeOrDash(r.Next), timeOrDash(r.Last)
		if people && !r.Next.IsZero() {
			next = r.Next.Local().Format("01-02 15:04")
		}
		if people && !r.Last.IsZero() {
			last = terminal.Short(now.Sub(r.Last))
			if r.Outcome != schedule.Pushed {
				last = strings.TrimSpace(last + " " + r.Outcome)
			}
		}
		if r.Paused {
			next = "paused"
		}
		t.Row(r.Queue, r.ID, r.When(), next, last, r.Fired, r.Skipped)
	}

	return t
}

// timeOrDash is a time as it is printed, or a dash for none.
func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
