package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

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
	cmd.Flags().DurationVar(&w.every, "every", 2*time.Second,
		"`DURATION` between two looks, 2s unless it says otherwise")
	cmd.Flags().IntVar(&w.count, "count", 0, "end after `N` looks; else a signal ends it")
	cmd.Flags().BoolVar(&w.json, "json", false, "print a line of JSON for each queue each time")
	flags.WithoutDefault(cmd.Flags(), "every")
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

	ctx := cmd.Context()
	s, err := w.open(ctx, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}

	defer s.close()
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()

	var last *look
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for n := 1; ; n++ {
		before := last
		slow := time.AfterFunc(silence, func() { sayLast(cmd, before, "no answer yet") })
		now, err := w.look(s)
		slow.Stop()
		switch {
		case s.usable.Err() != nil:
			return s.explain(context.Cause(s.usable), "")
		case err != nil && last == nil:
			return err
		case err != nil: // it may pass
			sayLast(cmd, last, err.Error())
			err = nil
		default:
			err = w.show(cmd.OutOrStdout(), now, last)
			if last == nil {
				w.noteUnused(now)
			}
			last = now
		}
		if err != nil || n == w.count {
			return err
		}

		select {
		case <-ticker.C:
		case <-s.usable.Done(): // the next look fails, and says why
		}
	}
}

// noteUnused tells people which of the queues that they named are not in use. It has connections of
// its own: the server ends one where this user may not ask for that.
func (w *watch) noteUnused(first *look) {
	for i, q := range w.named {
		if first.queues[i].items() == 0 {
			_, _ = ask(q, "", func(ctx context.Context, s *session) (bool, error) {
				return s.noteUnused(ctx), nil
			})
		}
	}
}

// silence is how long a look may take before people are told that it does.
const silence = 3 * time.Second

// sayLast says why there are no newer figures than those of the last look, if there was one.
func sayLast(cmd *cobra.Command, last *look, why string) {
	if last != nil { // there is nowhere to report a failure
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pq: %s: the figures are of %s\n", why,
			last.at.Format(time.TimeOnly))
	}
}

// seen is a queue at one look.
type seen struct {
	counted
	oldest *time.Duration // since the push of the oldest ready item, if there is one
	paused string         // that it is, or ""
}

// look is what was seen at one time.
type look struct {
	at     time.Time // when the answers were there, which may take long to come
	queues []seen
}

// look takes a look at the queues.
func (w *watch) look(s *session) (_ *look, err error) {
	ctx, cancel := context.WithTimeout(s.usable, s.Timeout)
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

	l := &look{at: time.Now()}
	for i, info := range infos {
		list[i].Ready, list[i].Leased, list[i].Delayed = info.Ready, info.Leased, info.Delayed
		l.queues = append(l.queues, seen{list[i], info.OldestAge, paused(infos, i)})
	}

	return l, nil
}

// show prints what was seen now, and how that differs from the last look, if there was one.
func (w *watch) show(out io.Writer, now, last *look) error {
	at := timeText(now.at.UTC())
	if w.json {
		encoder := json.NewEncoder(out)
		for _, q := range now.queues {
			line := struct {
				Time string `json:"time"`
				counted
				Change *float64 `json:"change_per_s,omitempty"`
				Oldest float64  `json:"oldest_age_s"`
			}{at, q.counted, now.change(last, q), q.age().Seconds()}
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		return nil
	}

	people := terminal.Is(out)
	t := terminal.NewTable(out, slices.Concat(countColumns[:5],
		[]string{"CHANGE/S>", "OLDEST>", ""})...)
	for _, q := range now.queues {
		change := "-"
		if c := now.change(last, q); c != nil {
			change = fmt.Sprintf("%+.1f", *c)
		}
		row := []any{q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed, change}
		if people {
			t.Row(append(row, terminal.InWords(q.age()), q.paused)...)
		} else {
			t.Row(append([]any{at}, append(row, fmt.Sprintf("%.1f", q.age().Seconds()))...)...)
		}
	}

	if !people {
		return t.Print()
	}
	return terminal.Redraw(out, fmt.Sprintf("%s   %s\n\n%s", now.at.Format(time.TimeOnly),
		terminal.Plural(len(now.queues), "queue"), t))
}

// age is the age of the oldest ready item, 0 if none is ready.
func (q *seen) age() time.Duration { return *cmp.Or(q.oldest, new(time.Duration)) }

func (q *seen) items() int64 { return q.Ready + q.Leased + q.Delayed }

// change returns how many items a second a queue has won or lost since the last look, nil without
// one.
func (l *look) change(last *look, q seen) *float64 {
	if last == nil || !l.at.After(last.at) {
		return nil
	}

	before := int64(0)
	same := func(b seen) bool { return b.Kind == q.Kind && b.Queue == q.Queue }
	if i := slices.IndexFunc(last.queues, same); i >= 0 {
		before = last.queues[i].items()
	}

	change := float64(q.items()-before) / l.at.Sub(last.at).Seconds()
	return &change
}
