package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// counted is a queue in a list, and how many items it has in each state.
type counted struct {
	Kind string `json:"kind"`
	subjects.QueueCounts
}

// counted is the queue as an entry in a list, with nothing counted.
func (q *queue) counted() counted {
	return counted{q.kind().Short(), subjects.QueueCounts{Queue: q.name}}
}

func (q counted) isFIFO() bool { return q.Kind == subjects.FIFO.Short() }

// countColumns are the columns of a table of what was counted.
var countColumns = []string{"KIND", "QUEUE~", "READY>", "LEASED>", "DELAYED>"}

func newLs(a *app) *cobra.Command {
	var asJSON, fifoOnly bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the queues",
		Long: `List the queues that have items or settings, and how many items are ready,
leased and delayed. The kind is pq for priority queues, q for FIFO queues. Into
a pipe, tabs separate the columns, and there is no heading.`,
		Example: `  pq ls
  pq ls --fifo --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ls(cmd, fifoOnly, asJSON) },
	}

	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVarP(&fifoOnly, "fifo", "q", false, "only FIFO queues")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each queue")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (a *app) ls(cmd *cobra.Command, fifoOnly, asJSON bool) error {
	all := &queue{app: a, cmd: cmd, fifo: fifoOnly}
	queues, err := ask(all, "",
		func(ctx context.Context, s *session) ([]counted, error) { return s.queues(ctx, fifoOnly) })
	if err != nil {
		return err
	}

	out := cmd.OutOrStdout()
	if asJSON {
		return encodeLines(out, queues)
	}

	t := terminal.NewTable(out, countColumns...)
	for _, q := range queues {
		t.Row(q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed)
	}

	if len(queues) == 0 && terminal.Is(cmd.ErrOrStderr()) {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(),
			"pq: no queue has items or settings: pq push makes one")
		return err
	}

	return t.Print()
}

// encodeLines prints a line of JSON for each value.
func encodeLines[T any](out io.Writer, values []T) error {
	encoder := json.NewEncoder(out)
	for _, value := range values {
		if err := encoder.Encode(value); err != nil {
			return err
		}
	}
	return nil
}

// list returns all queues of a kind.
func (s *session) list(ctx context.Context, kind subjects.Kind) ([]subjects.QueueCounts, error) {
	return target.List(s.client, kind == subjects.FIFO,
		func(request func(context.Context) error) error { return request(ctx) })
}

// queues returns all queues, or only the FIFO queues.
func (s *session) queues(ctx context.Context, fifoOnly bool) (all []counted, err error) {
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		if fifoOnly && kind == subjects.Priority {
			continue
		}
		list, err := s.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, q := range list {
			all = append(all, counted{kind.Short(), q})
		}
	}

	return all, nil
}

// infos asks about queues.
func (s *session) infos(ctx context.Context, list []counted) ([]*client.QueueInfo, error) {
	return each(ctx, s, list, target.Queue.Info)
}

// each asks something about queues, several at a time.
func each[T any](
	ctx context.Context, s *session, list []counted,
	ask func(target.Queue, context.Context) (T, error),
) ([]T, error) {
	answers := make([]T, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, q := range list {
		group.Go(func() (err error) {
			answers[i], err = ask(target.New(s.client, q.isFIFO(), q.Queue), ctx)
			return err
		})
	}

	return answers, group.Wait()
}
