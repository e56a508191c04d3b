package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/pqbridge/pqbridge/subjects/settings"
)

func newConfig(a *app) *cobra.Command {
	q := &queue{app: a}
	cmd := q.command(&cobra.Command{
		Use:   "config QUEUE [NAME=VALUE...]",
		Short: "Print or change the settings of a queue",
		Long: `Print and change a queue's settings. NAME= resets one. Durations are like 1h30m.

` + listSettings(),
		Example: `  pq config jobs ack_wait=1m backoff=1s,10s,1m max_deliver=`,
	}, q.configure)
	q.addJSON(protocolJSON)
	return cmd
}

// listSettings says what can be set, in two columns.
func listSettings() string {
	all := slices.Collect(settings.All())
	half := (len(all) + 1) / 2

	lines := make([]string, half)
	for i, s := range all {
		if i < half {
			lines[i] = fmt.Sprintf("  %-12s%s", s.Name, s.About)
		} else {
			lines[i-half] = fmt.Sprintf("%-36s%-21s%s", lines[i-half], s.Name, s.About)
		}
	}

	return strings.Join(lines, "\n")
}

func (q *queue) configure(changes []string) error {
	var change subjects.Change
	for _, text := range changes {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return exit.Usagef("%q: want NAME=VALUE, or NAME= to reset it", text)
		}
		if err := change.Set(name, value); err != nil {
			return exit.Usage(err)
		}
	}

	unknown, unused := "", false
	if len(changes) > 0 {
		unknown = "the settings may have changed"
	}

	now, err := ask(q, unknown, func(ctx context.Context, s *session) (client.Settings, error) {
		if len(changes) > 0 {
			return s.queue.ChangeSettings(ctx, &change)
		}
		now, err := s.queue.Settings(ctx)
		unused = err == nil && s.noteUnused(ctx)
		return now, err
	})
	if err != nil {
		return err
	}

	texts := subjects.SettingTexts(&now)
	if len(texts) == 0 && !q.json && !unused {
		q.say("%s has no settings: the defaults are in force", q.name)
	}

	return q.print(reply{plainLines(texts), subjects.EncodeSettings(&now)})
}

// plainLines returns settings as they are printed.
func plainLines(texts []string) (lines string) {
	for _, text := range texts {
		lines += terminal.Plain(text) + "\n"
	}
	return lines
}

func newPause(a *app) *cobra.Command {
	q := &queue{app: a}
	var during time.Duration
	var group string
	cmd := q.command(&cobra.Command{
		Use:   "pause QUEUE",
		Short: "Pause a queue: pops and leases find nothing",
		Long: `Let pops and leases of a queue find nothing until pq resume, or for a time.
Pops that wait keep waiting; pushes and acknowledgements go on. With --group,
items of the other groups are served, and so are items without one.
The queue must be in use: pq config QUEUE pause_until=TIME pauses one that is
not in use yet. It prints what is paused now.`,
		Example: `  pq pause jobs
  pq pause jobs --for 10m
  pq pause jobs --group acme`,
	}, func([]string) error { return q.pause(group, during) })

	cmd.Flags().StringVar(&group, "group", "", "only items of this group, until pq resume")
	flags.Duration(cmd.Flags(), &during, "for", 0, "`DURATION` after which pops go on")
	return cmd
}

func (q *queue) pause(group string, during time.Duration) error {
	change := &subjects.Change{Settings: client.Settings{PauseUntil: target.Forever}}
	switch timed := q.cmd.Flags().Changed("for"); {
	case timed && group != "":
		return exit.Usagef("a group stays paused until pq resume: leave out --for")
	case timed && during <= 0:
		return exit.Usagef("--for is %v: want a duration above zero, such as 10m", during)
	case timed:
		change.Settings.PauseUntil = time.Now().Add(during).UTC()
	}
	return q.setPause(change, group, true)
}

// setPause makes a change, or with a group pauses or resumes that instead, of a queue in use; the
// name of any other is misspelt. It prints the pauses in force.
func (q *queue) setPause(change *subjects.Change, group string, pause bool) error {
	if group != "" {
		change = &subjects.Change{Groups: map[string]bool{group: pause}}
		if err := settings.CheckGroup(group); err != nil {
			return exit.Usagef("--group: %w", err)
		}
	}

	now, err := ask(q, "the pause may have changed",
		func(ctx context.Context, s *session) (now client.Settings, err error) {
			if text := s.suggest(ctx, ""); text != "" {
				return now, errors.New(text)
			}
			if group == "" {
				return s.queue.ChangeSettings(ctx, change)
			}

			info, err := s.queue.Info(ctx)
			if err != nil {
				return now, err
			}

			if !pause && !slices.Contains(info.Settings.PausedGroups, group) {
				paused := strings.Join(info.Settings.PausedGroups, ", ")
				names := cmp.Or(terminal.Plain(paused), "none")
				return now, fmt.Errorf("%+q is not among the paused groups of %s, which are: %s",
					group, q.name, names)
			}

			now, err = s.queue.ChangeSettings(ctx, change)
			if err == nil && change.Groups[group] && !info.MayHaveGroup(group) {
				q.say("no item of this group is ready or leased in %s now", q.name)
			}
			return now, err
		})
	if err != nil {
		return err
	}

	isOther := func(text string) bool { return !strings.HasPrefix(text, "pause") }
	paused := slices.DeleteFunc(subjects.SettingTexts(&now), isOther)
	return q.print(reply{text: plainLines(paused)})
}

func newResume(a *app) *cobra.Command {
	q := &queue{app: a}
	var group string
	cmd := q.command(&cobra.Command{
		Use:        "resume QUEUE",
		SuggestFor: []string{"unpause", "continue"},
		Short:      "Resume a paused queue",
		Long: `Let pops and leases of a queue that is paused go on. Paused groups stay paused:
resume each with --group.`,
		Example: `  pq resume jobs
  pq resume jobs --group acme`,
	}, func([]string) error {
		return q.setPause(&subjects.Change{Reset: []string{"pause_until"}}, group, false)
	})

	cmd.Flags().StringVar(&group, "group", "", "only this paused group")
	return cmd
}
