package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func newDelete(a *app) *cobra.Command {
	m := &bulk{queue: queue{app: a}}
	return m.command(&cobra.Command{
		Use:        "delete QUEUE",
		SuggestFor: []string{"destroy", "drop"},
		Short:      "Delete a queue with all that belongs to it",
		Long: `Delete all that a queue has: items in any state, finished jobs, schedules, its
source and its settings. It prints what there is and asks; where there is no
terminal, it needs --yes. Dead letters are in a queue of their own, and stay. So
do consumers of JetStream programs.`,
		Example: `  pq delete jobs
  pq delete jobs-dead --yes`,
	}, func([]string) error { return m.deleteQueue() })
}

// belongings are what a queue has.
type belongings struct {
	info      *client.QueueInfo
	schedules []*client.ScheduleRecord
	dead      string // the queue with its dead letters, "" for none
}

// String lists them for people.
func (b belongings) String() string {
	settings := subjects.SettingTexts(&b.info.Settings)
	parts := []string{items(target.Count(b.info, ""), "")}
	for _, part := range []struct {
		n    int
		what string
	}{
		{int(b.info.Finished), "finished job"},
		{len(b.schedules), "schedule"},
		{len(settings), "setting"},
	} {
		if part.n > 0 {
			parts = append(parts, terminal.Plural(part.n, part.what))
		}
	}
	if b.info.Settings.Source != "" {
		parts = append(parts, "its source among them")
	}
	return strings.Join(parts, ", ")
}

// belongings returns what the queue of the command has.
func (s *session) belongings(ctx context.Context) (b belongings, err error) {
	if b.info, err = s.queue.Info(ctx); err != nil {
		return b, err
	}
	if b.schedules, err = s.queue.Schedules(ctx); err != nil {
		return b, err
	}

	dead := b.info.Settings.DeadLetterQueue(s.of.name)
	letters, err := target.Queue(s.client, s.of.fifo, dead).Info(ctx)
	if err == nil && dead != s.of.name && target.Count(letters, "") > 0 {
		b.dead = dead
	}
	return b, err
}

// deleteQueue asks, and deletes all that the queue has.
func (m *bulk) deleteQueue() error {
	if err := m.mayAsk(); err != nil {
		return err
	}

	has, err := ask(&m.queue, "", func(ctx context.Context, s *session) (belongings, error) {
		has, err := s.belongings(ctx)
		if err == nil && isUnused(has.info) && len(has.schedules) == 0 {
			s.noteUnused(ctx)
		}
		return has, err
	})
	if err == nil && !m.yes {
		err = confirm(m.cmd, fmt.Sprintf("Delete %s with %s?", m.name, has))
	}
	if err != nil {
		return err
	}

	n, err := ask(&m.queue, "parts of the queue may have been deleted",
		func(ctx context.Context, s *session) (int64, error) { return s.deleteAll(ctx, has) })
	if err != nil {
		return err
	}
	if has.dead != "" {
		m.say("the dead letters of %s stay in %s: pq delete %[2]s", m.name, has.dead)
	}
	if len(has.info.Consumers) > 0 {
		m.say("its consumers stay: nats consumer rm deletes them")
	}
	return m.printCount("deleted", n, fmt.Sprintf("deleted %s with %s", m.name, items(n, "")))
}

// deleteAll deletes what the queue has: first what would push, then the items, and settings last,
// because they say what becomes of items meanwhile. It returns how many items there were, finished
// jobs included.
func (s *session) deleteAll(ctx context.Context, has belongings) (n int64, err error) {
	for _, schedule := range has.schedules {
		if err := s.queue.Unschedule(ctx, schedule.ID); err != nil &&
			!errors.Is(err, client.ErrNotFound) {
			return 0, err
		}
	}
	if has.info.Settings.Source != "" {
		if err := s.reset(ctx, "source"); err != nil {
			return 0, err
		}
	}

	for _, state := range []client.State{"", client.Done} {
		purged, err := s.queue.Purge(ctx, state)
		n += purged
		if err != nil {
			return n, fmt.Errorf("%w; before that, %s deleted", err, items(n, ""))
		}
	}

	var names []string
	for _, text := range subjects.SettingTexts(&has.info.Settings) {
		name, _, _ := strings.Cut(text, "=")
		names = append(names, name)
	}
	return n, s.reset(ctx, names...)
}

// reset resets settings of the queue.
func (s *session) reset(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	_, err := s.queue.ChangeSettings(ctx, &subjects.Change{Reset: names})
	return err
}
