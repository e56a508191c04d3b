package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// watch is the command line of pq watch.
type watch struct {
	*app
	names    []string // of the queues, none for all
	fifoOnly bool
	every    time.Duration
	count    int
	json     bool
	stderr   io.Writer
	noStats  bool // because the user may not ask for them
}

func newWatch(a *app) *cobra.Command {
	w := &watch{app: a}
	cmd := &cobra.Command{
		Use:   "watch [QUEUE...]",
		Short: "Show the queues, and how they change",
		Long: `Show the queues, all or those named, and how they change: items in each state,
how many more or fewer a second, the age of the oldest ready item, and a line of
how many were ready lately. Into a pipe, print a line for each queue each time,
with tabs between time, kind, name, ready, leased, delayed, change per second
and age in seconds. The time between two looks is at least 100ms.`,
		Example: `  pq watch
  pq watch jobs mail --every 10s
  pq watch jobs --count 2 --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.names = args
			return w.run(cmd)
		},
	}

	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&w.fifoOnly, "fifo", "q", false, "only FIFO queues")
	cmd.Flags().DurationVar(&w.every, "every", 2*time.Second, "`DURATION` between two looks, 2s unless it says otherwise")
	cmd.Flags().IntVar(&w.count, "count", 0, "end after `N` looks; else a signal ends it")
	cmd.Flags().BoolVar(&w.json, "json", false, "print a line of JSON for each queue each time")
	flags.WithoutDefault(cmd.Flags(), "every")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return w.usedQueues(cmd, w.fifoOnly), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func (w *watch) run(cmd *cobra.Command) error {
	switch {
	case w.every < 100*time.Millisecond:
		return exit.UsageError{Err: fmt.Errorf("--every is %v: want 100ms or more", w.every)}
	case w.count < 0, w.count == 0 && cmd.Flags().Changed("count"):
		return exit.UsageError{Err: fmt.Errorf("--count is %d: want at least 1", w.count)}
	}

	for _, name := range w.names {
		if err := (&queue{app: w.app, name: name}).check(); err != nil {
			return err
		}
	}

	ctx := cmd.Context()
	s, err := w.open(ctx, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer s.close()
	if err := new(look).addBridges(s.usable, s); errors.Is(err, nats.ErrPermissionViolation) {
		w.noStats = true
		s.renew()
	}

	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()
	w.stderr = cmd.ErrOrStderr()

	show := w.printLines
	if out := cmd.OutOrStdout(); terminal.Is(out) && !w.json {
		screen := terminal.NewScreen(out)
		defer screen.Close()
		show = func(_ io.Writer, h *history) error { return screen.Show(h.frame) }
	}
	return w.look(cmd, s, show)
}

// look takes looks and shows them, until a signal comes.
func (w *watch) look(cmd *cobra.Command, s *session, show func(io.Writer, *history) error) error {
	var h history
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for n := 1; ; n++ {
		l, err := w.take(s)
		switch {
		case s.usable.Err() != nil:
			return s.explain(context.Cause(s.usable), "")
		case err != nil && h.last == nil:
			return err
		}

		h.add(l, err)
		if err := show(cmd.OutOrStdout(), &h); err != nil || n == w.count {
			return err
		}

		select {
		case <-ticker.C:
		case <-s.usable.Done():
			return s.explain(context.Cause(s.usable), "")
		}
	}
}

// take takes a look at the queues and the bridges.
func (w *watch) take(s *session) (*look, error) {
	ctx, cancel := context.WithTimeout(s.usable, s.Timeout)
	defer cancel()
	l := &look{at: time.Now()}
	group, ctx := errgroup.WithContext(ctx)
	if !w.noStats {
		group.Go(func() error { return l.addBridges(ctx, s) })
	}

	list, err := w.list(ctx, s)
	if err == nil {
		var infos []*client.QueueInfo
		infos, err = s.infos(ctx, list)
		err = s.outdated(subjects.Info, subjects.Priority, s.explain(err, ""))
		l.queues = make([]seen, len(list))
		for i, info := range infos {
			if info != nil {
				list[i].Ready, list[i].Leased, list[i].Delayed = info.Ready, info.Leased, info.Delayed
				l.queues[i] = seen{list[i], info.OldestAge}
			}
		}
	}

	if failed := group.Wait(); err == nil {
		err = failed
	}
	return l, err
}

// list returns the queues to look at.
func (w *watch) list(ctx context.Context, s *session) ([]counted, error) {
	if len(w.names) == 0 {
		list, err := s.queues(ctx, w.fifoOnly)
		return list, s.outdated(subjects.List, (&queue{fifo: w.fifoOnly}).kind(), s.explain(err, ""))
	}
	var list []counted
	for _, name := range w.names {
		list = append(list, counted{(&queue{fifo: w.fifoOnly}).kind().Short(), subjects.QueueCounts{Queue: name}})
	}
	return list, nil
}

// addBridges counts the bridges, and what they have done.
func (l *look) addBridges(ctx context.Context, s *session) error {
	err := discovery.Ask(ctx, s.nc, micro.StatsVerb, func(m *nats.Msg) error {
		var stats micro.Stats
		if err := json.Unmarshal(m.Data, &stats); err != nil {
			return err
		}
		l.bridges++
		for _, e := range stats.Endpoints {
			switch e.Name {
			case "push", "push-priority", "push-batch", "enqueue", "enqueue-batch":
				l.pushes += e.NumRequests
			case "pop-min", "pop-max", "dequeue":
				l.pops += e.NumRequests
			}
		}
		return nil
	})

	if errors.Is(err, client.ErrNoBridge) || errors.Is(err, nats.ErrTimeout) {
		return nil // the other requests say so
	}
	return err
}

// printLines prints the last look for programs.
func (w *watch) printLines(out io.Writer, h *history) error {
	if h.err != nil {
		_, err := fmt.Fprintln(w.stderr, "pq:", h.err)
		return err
	}

	t := terminal.NewTable(out)
	encoder := json.NewEncoder(out)

	for _, q := range h.last.queues {
		change, known := h.change(q)
		if w.json {
			line := struct {
				Time string `json:"time"`
				counted
				Change *float64 `json:"change_per_s,omitempty"`
				Oldest float64  `json:"oldest_age_s"`
			}{Time: timeText(h.last.at.UTC()), counted: q.counted, Oldest: ageSeconds(q.oldest)}
			if known {
				line.Change = &change
			}
			if err := encoder.Encode(line); err != nil {
				return err
			}
			continue
		}
		text := "-"
		if known {
			text = fmt.Sprintf("%.1f", change)
		}
		t.Row(timeText(h.last.at.UTC()), q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed, text, fmt.Sprintf("%.1f", ageSeconds(q.oldest)))
	}

	if w.json {
		return nil
	}
	return t.Print()
}

func ageSeconds(d *time.Duration) float64 {
	if d == nil {
		return 0
	}
	return d.Seconds()
}
