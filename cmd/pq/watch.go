package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// watch is the command line of pq watch.
type watch struct {
	*app
	named    []*queue // none for all
	fifoOnly bool
	every    time.Duration
	count    int
	json     bool
}

func newWatch(a *app) *cobra.Command {
	w := &watch{app: a}
	cmd := &cobra.Command{
		Use:   "watch [QUEUE...]",
		Short: "Show the queues, and how they change",
		Long: `Show the queues, all or those named, and how they change: items in each state,
how many more or fewer a second, and the age of the oldest ready item. Into a
pipe, print a line for each queue each time.`,
		Example: `  pq watch jobs mail --every 10s
  pq watch jobs --count 2 --json`,
		RunE: w.run,
	}

	cmd.Flags().BoolVarP(&w.fifoOnly, "fifo", "q", false, "only FIFO queues")
	flags.Duration(cmd.Flags(), &w.every, "every", 2*time.Second,
		"`DURATION` between updates")
	cmd.Flags().IntVar(&w.count, "count", 0, "end after `N` updates; else on a signal")
	cmd.Flags().BoolVar(&w.json, "json", false, "print a line of JSON for each queue each time")
	return cmd
}

func (w *watch) run(cmd *cobra.Command, names []string) error {
	switch {
	case w.every < 100*time.Millisecond:
		return exit.Usagef("--every is %v: want 100ms or more", w.every)
	case w.count < 0, w.count == 0 && cmd.Flags().Changed("count"):
		return exit.Usagef("--count is %d: want at least 1", w.count)
	}

	for _, name := range names {
		q := &queue{app: w.app, cmd: cmd, fifo: w.fifoOnly, name: name}
		if err := q.check(); err != nil {
			return err
		}
		w.named = append(w.named, q)
	}

	ctx, all := cmd.Context(), &queue{cmd: cmd, fifo: w.fifoOnly} // all queues, as s.of
	s, err := w.open(ctx, w.Lasting(all.sayRefusal)...)
	if err != nil {
		return err
	}

	s.of = all
	defer s.nc.Close()

	var last *look
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if last, err = w.update(ctx, s, last); err != nil || n == w.count {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done(): // the next look fails, and says why
		}
	}
}

// update takes a look and shows it. After an error that may pass it returns the last look, and says
// that its figures are still shown.
func (w *watch) update(ctx context.Context, s *session, last *look) (*look, error) {
	of := s.of
	slow := time.AfterFunc(silence, func() { sayLast(of, last, "no answer yet") })
	now, err := w.look(ctx, s)
	slow.Stop()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && (last == nil || errors.Is(err, nats.ErrPermissionViolation)):
		return nil, err
	case err != nil:
		sayLast(of, last, err.Error())
		return last, nil
	}

	err = w.show(of.cmd.OutOrStdout(), now, last)
	if err == nil && last == nil {
		w.noteUnused(ctx, s, now)
	}
	return now, err
}

// noteUnused tells people which of the queues that they named are not in use.
func (w *watch) noteUnused(ctx context.Context, s *session, first *look) {
	for i, q := range w.named {
		if first.queues[i].items() == 0 {
			s.use(q)
			s.noteUnused(ctx)
		}
	}
}

// silence is how long a look may take before people are told that it does.
const silence = 3 * time.Second

// sayLast says why the figures of the last look are not replaced, if there was one.
func sayLast(all *queue, last *look, why string) {
	if last != nil {
		all.say("%s: the figures are of %s", why, last.at.Format(time.TimeOnly))
	}
}

// look has the figures of one time.
type look struct {
	at     time.Time // when the answers were there, which may take long to come
	queues []counted
	infos  []*client.QueueInfo // of these queues
}

// look takes a look at the queues.
func (w *watch) look(ctx context.Context, s *session) (_ *look, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()

	var list []counted
	for _, q := range w.named {
		list = append(list, q.counted())
	}

	if len(list) == 0 {
		if list, err = (&queue{fifo: w.fifoOnly}).listed(ctx, s); err != nil {
			return nil, s.explain(err, "")
		}
	}

	infos, err := s.infos(ctx, list)
	if err != nil {
		return nil, s.explain(err, "")
	}

	for i, info := range infos {
		list[i].Ready, list[i].Leased, list[i].Delayed = info.Ready, info.Leased, info.Delayed
	}
	return &look{time.Now(), list, infos}, nil
}

// show prints a look, and how it differs from the last one, if there was one.
func (w *watch) show(out io.Writer, now, last *look) error {
	at := timeText(now.at.UTC())
	if w.json {
		encoder := json.NewEncoder(out)
		for i, q := range now.queues {
			line := struct {
				Time string `json:"time"`
				counted
				Change *float64 `json:"change_per_s,omitempty"`
				Oldest float64  `json:"oldest_age_s"`
			}{at, q, now.change(last, q), now.age(i).Seconds()}
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}

	people := terminal.Is(out)
	t := terminal.NewTable(out, slices.Concat(countColumns[:5],
		[]string{"CHANGE/S>", "OLDEST>", ""})...)
	for i, q := range now.queues {
		change := "-"
		if c := now.change(last, q); c != nil {
			change = fmt.Sprintf("%+.1f", *c)
		}
		row := []any{q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed, change}
		if people {
			t.Row(append(row, terminal.InWords(now.age(i)), paused(now.infos[i]))...)
		} else {
			t.Row(append([]any{at}, append(row, fmt.Sprintf("%.1f", now.age(i).Seconds()))...)...)
		}
	}

	if !people {
		return t.Print()
	}
	return terminal.Redraw(out, fmt.Sprintf("%s   %s\n\n%s", now.at.Format(time.TimeOnly),
		terminal.Plural(len(now.queues), "queue"), t))
}

// age is the age of the oldest ready item of a queue, 0 if none is ready.
func (l *look) age(i int) time.Duration {
	return *cmp.Or(l.infos[i].OldestAge, new(time.Duration))
}

// change returns how many items a second a queue has won or lost since the last look, nil without
// one.
func (l *look) change(last *look, q counted) *float64 {
	if last == nil || !l.at.After(last.at) {
		return nil
	}

	before := int64(0)
	same := func(b counted) bool { return b.Kind == q.Kind && b.Queue == q.Queue }
	if i := slices.IndexFunc(last.queues, same); i >= 0 {
		before = last.queues[i].items()
	}

	change := float64(q.items()-before) / l.at.Sub(last.at).Seconds()
	return &change
}
