package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
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
  pq schedule ls jobs`,
	}
	set := func(name, short, did string, do func(context.Context, *session, string) (any, error)) *cobra.Command {
		q := &queue{app: a}
		return q.request(&cobra.Command{
			Use: name + " QUEUE ID", Short: short, Long: short + ".", Example: "  pq schedule " + name + " jobs nightly",
		}, "the schedule may be "+did, func(ctx context.Context, s *session, args []string) (reply, error) {
			answer, err := do(ctx, s, args[0])
			if answer == nil {
				answer = subjects.Removed{Queue: q.name, ID: args[0]}
			}
			return reply{json: answer}, err
		})
	}
	cmd.AddCommand(newScheduleAdd(a), newScheduleList(a),
		set("run", "Push an item of a schedule now", "run", func(ctx context.Context, s *session, id string) (any, error) {
			return s.queue.RunSchedule(ctx, id)
		}),
		set("pause", "Keep a schedule from pushing items", "paused", func(ctx context.Context, s *session, id string) (any, error) {
			return s.queue.PauseSchedule(ctx, id, true)
		}),
		set("resume", "Let a paused schedule go on", "resumed", func(ctx context.Context, s *session, id string) (any, error) {
			return s.queue.PauseSchedule(ctx, id, false)
		}),
		set("rm", "Remove a schedule", "removed", func(ctx context.Context, s *session, id string) (any, error) {
			return nil, s.queue.Unschedule(ctx, id)
		}))
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
		Use:   "add QUEUE ID [VALUE]",
		Short: "Set a schedule",
		Long: `Push an item with VALUE at each time of a schedule, once, whichever bridges are
there. A schedule with the same ID is replaced.`,
		Example: `  pq schedule add jobs nightly report --cron "0 3 * * *" --zone Europe/Berlin
  pq schedule add jobs poll --every 15m --overlap skip --priority -5`,
	}, "the schedule may be set", func(ctx context.Context, session *session, _ []string) (reply, error) {
		record, err := session.queue.SetSchedule(ctx, s)
		return reply{text: fmt.Sprintln(timeOrDash(record.Next)), json: record}, err
	})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		s.ID, s.Value = args[1], []byte(strings.Join(args[2:], " "))
		s.Priority, s.Every, s.Jitter = int64(priority), schedule.Duration(every), schedule.Duration(jitter)
		for _, h := range headers {
			name, value, err := headerFlag(h)
			if err != nil {
				return exit.UsageError{Err: err}
			}
			if s.Headers == nil {
				s.Headers = map[string][]string{}
			}
			s.Headers[name] = append(s.Headers[name], value)
		}
		if until != "" {
			at, err := time.Parse(time.RFC3339, until)
			if err != nil {
				return exit.UsageError{Err: errors.New("--until: want a time such as 2030-01-02T15:04:05Z")}
			}
			s.Until = at
		}
		if err := checkSchedule(s); err != nil {
			return exit.UsageError{Err: err}
		}
		return nil
	}
	set := cmd.Flags()
	set.StringVar(&s.Cron, "cron", "", "`EXPRESSION` of five fields, or @daily and such")
	set.DurationVar(&every, "every", 0, "push at an interval of `DURATION`")
	set.StringVar(&s.Zone, "zone", "", "time `ZONE` of --cron; UTC by default")
	set.VarP(&priority, "priority", "p", "decimal `PRIORITY` of the items")
	set.StringArrayVarP(&headers, "header", "H", nil, "`NAME:VALUE` to store with the items; repeat for more")
	set.DurationVar(&jitter, "jitter", 0, "up to `DURATION` later, each by another part")
	set.StringVar(&s.IfMissed, "if-missed", "", "missed times: `once` (default), skip or all")
	set.StringVar(&s.Overlap, "overlap", "", "if the last item is there: `allow` (default) or skip")
	set.StringVar(&until, "until", "", "`TIME` after which it ends, in RFC 3339")
	flags.WithoutDefault(set, "every", "jitter")
	return cmd
}

// checkSchedule returns what a bridge would refuse. A zone that is unknown here may be known there.
func checkSchedule(s client.Schedule) error {
	if _, err := time.LoadLocation(s.Zone); err != nil {
		s.Zone = ""
	}
	return s.Check()
}

func newScheduleList(a *app) *cobra.Command {
	q := &queue{app: a}
	var asJSON bool
	cmd := q.command(&cobra.Command{
		Use:     "ls QUEUE",
		Short:   "List the schedules of a queue",
		Long:    "List the schedules of a queue. Into a pipe, tabs separate the columns, and there\nis no heading.",
		Example: "  pq schedule ls jobs",
	}, func([]string) error {
		list, err := ask(q, "", func(ctx context.Context, s *session) ([]*client.ScheduleRecord, error) { return s.queue.Schedules(ctx) })
		if err != nil {
			return err
		}
		if asJSON {
			encoder := json.NewEncoder(q.cmd.OutOrStdout())
			for _, r := range list {
				if err := encoder.Encode(r); err != nil {
					return err
				}
			}
			return nil
		}
		if len(list) == 0 {
			_, _ = fmt.Fprintln(q.cmd.ErrOrStderr(), "pq: no schedules") // there is nowhere to report a failure
			return nil
		}
		t := terminal.NewTable(q.cmd.OutOrStdout(), terminal.Column{Title: "ID"}, terminal.Column{Title: "WHEN"}, terminal.Column{Title: "NEXT"},
			terminal.Column{Title: "LAST"}, terminal.Column{Title: "FIRED", Align: terminal.Right}, terminal.Column{Title: "SKIPPED", Align: terminal.Right})
		for _, r := range list {
			next := timeOrDash(r.Next)
			if r.Paused {
				next = "paused"
			}
			t.Row(terminal.Plain(r.ID), terminal.Plain(r.When()), next, timeOrDash(r.Last), r.Fired, r.Skipped)
		}
		return t.Print()
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each schedule")
	return cmd
}

// timeOrDash is a time as it is printed, or a dash for none.
func timeOrDash(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
