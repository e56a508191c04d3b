package main

import (
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
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

func newConfig(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Config}
	var asJSON bool
	cmd := q.command(&cobra.Command{
		Use:   "config QUEUE [NAME=VALUE...]",
		Short: "Print or change the settings of a queue",
		Long: `Print the settings of a queue, after changing those that are named. NAME= resets
one to its default. Durations have a unit, such as 90s or 1h30m.

` + listSettings(),
		Example: `  pq config jobs
  pq config jobs ack_wait=1m backoff=1s,10s,1m max_deliver=`,
	}, func(changes []string) error { return q.configure(changes, asJSON) })
	cmd.ValidArgsFunction = q.completeSettings
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the protocol defines it")
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

func (q *queue) configure(changes []string, asJSON bool) error {
	var change subjects.Change
	for _, text := range changes {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return exit.UsageError{Err: fmt.Errorf("%q: want NAME=VALUE, or NAME= to reset it", text)}
		}
		if err := change.Set(name, value); err != nil {
			return exit.UsageError{Err: err}
		}
	}

	if len(changes) > 0 {
		now, err := q.applySettings(&change)
		if err != nil {
			return err
		}
		if !asJSON && len(subjects.SettingTexts(&now)) == 0 {
			q.noteDefaults()
		}
		return q.print(settingsReply(&now), asJSON)
	}

	q.verb = subjects.Info // which needs no right to change them
	now, err := ask(q, "", func(ctx context.Context, s *session) (client.Settings, error) {
		now, err := s.queue.Settings(ctx)
		if err == nil && len(subjects.SettingTexts(&now)) == 0 && !s.noteUnused(ctx) {
			q.noteDefaults()
		}
		return now, err
	})
	if err != nil {
		return err
	}
	return q.print(settingsReply(&now), asJSON)
}

func settingsReply(now *client.Settings) reply {
	text := ""
	for _, line := range subjects.SettingTexts(now) {
		text += line + "\n"
	}
	return reply{text, subjects.EncodeSettings(now)}
}

// applySettings changes settings and returns all that are set.
func (q *queue) applySettings(change *subjects.Change) (client.Settings, error) {
	return ask(q, "the settings may have changed", func(ctx context.Context, s *session) (client.Settings, error) {
		return s.queue.Configure(ctx, change.Settings, change.Reset...)
	})
}

// noteDefaults says that there is nothing to print.
func (q *queue) noteDefaults() {
	_, _ = fmt.Fprintf(q.cmd.ErrOrStderr(), "pq: %s has no settings: the defaults are in force\n", q.name)
}

// forever is until when a queue is paused that has to be resumed.
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func newPause(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Config}
	var during time.Duration
	var until string
	cmd := q.command(&cobra.Command{
		Use:   "pause QUEUE",
		Short: "Let pops and leases find nothing",
		Long: `Let pops and leases of a queue find nothing until pq resume, or for a time.
Those that wait go on waiting; pushes and acknowledgements go on too.`,
		Example: `  pq pause jobs
  pq pause jobs --for 10m
  pq pause --fifo mail --until 2030-01-31T12:00:00Z`,
	}, func([]string) error { return q.pause(during, until) })

	cmd.Flags().DurationVar(&during, "for", 0, "`DURATION` after which pops go on")
	cmd.Flags().StringVar(&until, "until", "", "`TIME` at which pops go on, as in RFC 3339")
	flags.WithoutDefault(cmd.Flags(), "for")
	return cmd
}

func (q *queue) pause(during time.Duration, until string) error {
	change := subjects.Change{Settings: client.Settings{PauseUntil: forever}}
	given := q.cmd.Flags().Changed("for")
	switch {
	case given && until != "":
		return exit.UsageError{Err: errors.New("--for and --until exclude each other: leave out one")}
	case given && during <= 0:
		return exit.UsageError{Err: fmt.Errorf("--for is %v: want a duration above zero, such as 10m", during)}
	case given:
		change.Settings.PauseUntil = time.Now().Add(during).UTC()
	case until != "":
		if err := change.Set("pause_until", until); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--until is %q: want a time such as 2030-01-31T12:00:00Z, with a year from 1970 to 9999", until)}
		}
	}

	_, err := q.applySettings(&change)
	return err
}

func newResume(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Config}
	return q.command(&cobra.Command{
		Use:     "resume QUEUE",
		Short:   "End a pause",
		Long:    "Let pops and leases of a queue that is paused go on.",
		Example: "  pq resume jobs",
	}, func([]string) error {
		_, err := q.applySettings(&subjects.Change{Reset: []string{"pause_until"}})
		return err
	})
}
