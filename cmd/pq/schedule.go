package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/subjects"
)

// newSchedule returns the command whose subcommands work on schedules.
func newSchedule(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Push an item again and again",
		Long: `Have a queue push an item at the times of a cron expression, or at an interval:
add, ls, run, pause, resume, rm. See pq schedule COMMAND --help.`,
		Example: `  pq schedule add jobs nightly report --cron "0 3 * * *" --zone Europe/Berlin
  pq schedule ls`,
	}
	set := func(name, short, did string, do setSchedule) *cobra.Command {
		q := &queue{app: a}
		run := func(ctx context.Context, s *session, args []string) (reply, error) {
			answer, err := do(s.queue, ctx, args[0])
			if answer == nil {
				answer = subjects.Removed{Queue: q.name, ID: args[0]}
			}
			return reply{json: answer}, err
		}
		return q.request(&cobra.Command{
			Use: name + " QUEUE ID", Short: short, Long: short + ".",
			Example: "  pq schedule " + name + " jobs nightly",
		}, "the schedule may be "+did, run)
	}
	pause := func(paused bool) setSchedule {
		return func(q target.Queue, ctx context.Context, id string) (any, error) {
			return q.PauseSchedule(ctx, id, paused)
		}
	}
	run := func(q target.Queue, ctx context.Context, id string) (any, error) {
		return q.RunSchedule(ctx, id)
	}
	remove := func(q target.Queue, ctx context.Context, id string) (any, error) {
		return nil, q.Unschedule(ctx, id)
	}
	cmd.AddCommand(newScheduleAdd(a), newScheduleList(a),
		set("run", "Push an item of a schedule now", "run", run),
		set("pause", "Keep a schedule from pushing items", "paused", pause(true)),
		set("resume", "Let a paused schedule go on", "resumed", pause(false)),
		set("rm", "Remove a schedule", "removed", remove))
	return cmd
}

// setSchedule changes a schedule, and returns what --json prints, nil for one that was removed.
type setSchedule func(q target.Queue, ctx context.Context, id string) (any, error)

func newScheduleAdd(a *app) *cobra.Command {
	q := &queue{app: a}
	var s client.Schedule
	var priority flags.Priority
	var every, jitter time.Duration
	var headers []string
	var until string
	cmd := q.request(&cobra.Command{
		Use:   "add QUEUE ID [VALUE]",
		Short: "Set a schedule",
		Long: `Push an item with VALUE at each time of a schedule, once, whichever bridges are
there. A schedule with the same ID is replaced.`,
		Example: `  pq schedule add jobs nightly report --cron "0 3 * * *" --zone Europe/Berlin
  pq schedule add jobs poll --every 15m --overlap skip --priority -5`,
	}, "the schedule may be set", func(
		ctx context.Context, at *session, _ []string,
	) (reply, error) {
		record, err := at.queue.SetSchedule(ctx, s)
		return reply{text: fmt.Sprintln(timeOrDash(record.Next)), json: record}, err
	})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		s.ID, s.Value = args[1], []byte(strings.Join(args[2:], " "))
		s.Priority = int64(priority)
		s.Every, s.Jitter = schedule.Duration(every), schedule.Duration(jitter)
		var err error
		if s.Headers, err = headersOf(headers); err != nil {
			return exit.UsageError{Err: err}
		}
		if until != "" {
			at, err := time.Parse(time.RFC3339, until)
			if err != nil {
				return exit.Usagef("--until: want a time such as 2030-01-02T15:04:05Z")
			}
			s.Until = at
		}
		if err := checkSchedule(s, time.Now()); err != nil {
			text := strings.TrimPrefix(err.Error(), badSchedule)
			return exit.UsageError{Err: flags.Named(cmd, err, text)}
		}
		return nil
	}
	set := cmd.Flags()
	set.StringVar(&s.Cron, "cron", "", "`EXPRESSION` of five fields, or @daily and such")
	set.DurationVar(&every, "every", 0, "push at an interval of `DURATION`")
	set.StringVar(&s.Zone, "zone", "", "time `ZONE` of --cron; UTC by default")
	set.VarP(&priority, "priority", "p", "decimal `PRIORITY` of the items")
	set.StringArrayVarP(&headers, "header", "H", nil,
		"`NAME:VALUE` to store with the items; repeat for more")
	set.DurationVar(&jitter, "jitter", 0, "up to `DURATION` later, each by another part")
	set.StringVar(&s.IfMissed, "if-missed", "",
		"`WHAT` of missed times: once (default), skip or all")
	set.StringVar(&s.Overlap, "overlap", "", "`WHAT` if the last is there: allow (default) or skip")
	set.StringVar(&until, "until", "", "`TIME` after which it ends, in RFC 3339")
	flags.WithoutDefault(set, "every", "jitter")
	flags.Completes(cmd, "if-missed", schedule.Once, schedule.Skip, schedule.All)
	flags.Completes(cmd, "overlap", schedule.Allow, schedule.Skip)
	return cmd
}

// headersOf returns the headers that flags give as NAME:VALUE; nil if there are none.
func headersOf(list []string) (headers map[string][]string, err error) {
	for _, h := range list {
		name, value, err := headerFlag(h)
		if err != nil {
			return nil, err
		}
		if headers == nil {
			headers = map[string][]string{}
		}
		headers[name] = append(headers[name], value)
	}
	return headers, nil
}

// badSchedule begins errors about schedules, before the member.
var badSchedule = schedule.ErrInvalid.Error() + ": "

// checkSchedule returns what a bridge would refuse. A zone that is unknown here may be known there.
func checkSchedule(s client.Schedule, now time.Time) error {
	if (s.Cron == "") == (s.Every == 0) {
		return errors.New(`want --cron or --every: such as --cron "0 3 * * *", or --every 15m`)
	}
	if _, err := time.LoadLocation(s.Zone); err != nil {
		s.Zone = ""
	}
	if err := s.Check(); err != nil {
		return err
	}
	return schedule.Set(nil, &s, now).CheckUntil(now)
}

func newScheduleList(a *app) *cobra.Command {
	q := &queue{app: a}
	var asJSON bool
	cmd := q.command(&cobra.Command{
		Use:   "ls [QUEUE]",
		Short: "List the schedules of a queue or of all",
		Long: `List the schedules of a queue, or of all: when they fire, the next and the last
time, and how many times an item was pushed or skipped. Into a pipe, tabs
separate queue, id, when, next, last, fired and skipped.`,
		Example: `  pq schedule ls
  pq schedule ls jobs --json`,
	}, func([]string) error { return q.listSchedules(asJSON) })
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each schedule")
	return cmd
}

// scheduled is a schedule and its queue, as --json prints it.
type scheduled struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	*client.ScheduleRecord
}

// listSchedules prints the schedules of the queue that is named, or of all.
func (q *queue) listSchedules(asJSON bool) error {
	list, err := ask(q, "", q.schedules)
	if err != nil {
		return err
	}

	out := q.cmd.OutOrStdout()
	if asJSON {
		return encodeLines(out, list)
	}

	if len(list) == 0 {
		q.say("no schedules")
		return nil
	}

	return scheduleTable(out, list, time.Now()).Print()
}

// schedules returns the schedules of the queue that is named, or of all.
func (q *queue) schedules(ctx context.Context, s *session) (all []scheduled, err error) {
	list := []counted{q.counted()}
	if q.name == "" {
		if list, err = s.queues(ctx, q.fifo); err != nil {
			return nil, err
		}
	}

	records, err := each(ctx, s, list, target.Queue.Schedules)
	for i, of := range records {
		for _, r := range of {
			all = append(all, scheduled{list[i].Kind, list[i].Queue, r})
		}
	}

	return all, err
}

// scheduleTable is a table of schedules. For people, times are short, and names are cut before
// WHEN.
func scheduleTable(out io.Writer, list []scheduled, now time.Time) *terminal.Table {
	people := terminal.Is(out)
	t := terminal.NewTable(out, "QUEUE~", "ID~", "WHEN~", "NEXT (UTC)", "LAST>", "FIRED>", "SKIP>")
	for _, r := range list {
		next, last := timeOrDash(r.Next), timeOrDash(r.Last)
		if people && !r.Next.IsZero() {
			next = r.Next.UTC().Format("01-02 15:04")
		}
		if people && !r.Last.IsZero() {
			last = terminal.Short(now.Sub(r.Last))
		}
		if r.Paused {
			next = "paused"
		}
		t.Row(r.Queue, terminal.Plain(r.ID), terminal.Plain(r.When()), next, last, r.Fired,
			r.Skipped)
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
