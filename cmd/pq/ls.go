package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// counted is a queue in a list, and how many items it has in each state.
type counted struct {
	Kind string `json:"kind"`
	subjects.QueueCounts
	Hour *traffic `json:"hour,omitempty"` // with --traffic
}

// counted is the queue as an entry in a list, with nothing counted.
func (q *queue) counted() counted {
	return counted{Kind: q.kind().Short(), QueueCounts: subjects.QueueCounts{Queue: q.name}}
}

func (q counted) items() int64 { return q.Ready + q.Leased + q.Delayed }

func (q counted) isFIFO() bool { return q.Kind == subjects.FIFO.Short() }

// countColumns are the columns of a table of counts.
var countColumns = []string{"KIND", "QUEUE~", "READY>", "LEASED>", "DELAYED>", ""}

func newLs(a *app) *cobra.Command {
	var asJSON, fifoOnly, traffic bool
	cmd := &cobra.Command{
		Use:        "ls",
		SuggestFor: []string{"queues"},
		Short:      "List the queues",
		Long: `List the queues that have items or settings, and how many items are ready,
leased and delayed. The kind is pq for priority queues, q for FIFO queues. A
terminal also shows which are paused. With --traffic, list how many deliveries
failed in the last hour, how many items are done, acknowledged or popped, and
how many became dead letters.`,
		Example: "  pq ls --fifo --json\n  pq ls --traffic",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ls(cmd, fifoOnly, asJSON, traffic)
		},
	}

	cmd.Flags().BoolVarP(&fifoOnly, "fifo", "q", false, "only FIFO queues")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each queue")
	cmd.Flags().BoolVar(&traffic, "traffic", false, "what became of items in the last hour")
	return cmd
}

func (a *app) ls(cmd *cobra.Command, fifoOnly, asJSON, traffic bool) error {
	all := &queue{app: a, cmd: cmd, fifo: fifoOnly}
	out := cmd.OutOrStdout()
	var infos []*client.QueueInfo
	queues, err := ask(all, "", func(ctx context.Context, s *session) ([]counted, error) {
		queues, err := all.listed(ctx, s)
		switch {
		case err != nil:
		case traffic:
			err = all.addTraffic(ctx, s, queues)
		case !asJSON && terminal.Is(out):
			infos, _ = s.infos(ctx, queues) // a user may have the right to list alone
		}
		return queues, err
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		return encodeLines(out, queues)
	case len(queues) == 0 && terminal.Is(cmd.ErrOrStderr()):
		all.say("no queue has items or settings: pq push makes one")
		return nil
	case traffic:
		return printTraffic(out, queues)
	}

	t := terminal.NewTable(out, countColumns...)
	for i, q := range queues {
		row := []any{q.Kind, q.Queue, q.Ready, q.Leased, q.Delayed}
		if terminal.Is(out) {
			row = append(row, paused(infos[i]))
		}
		t.Row(row...)
	}

	return t.Print()
}

// addTraffic adds what became of the items of queues in the last hour.
func (q *queue) addTraffic(ctx context.Context, s *session, queues []counted) error {
	counts, err := discovery.Busiest(ctx, s.nc, s.grammar)
	if counts.More {
		q.say("the bridges name only their busiest queues: figures of others may be too small")
	}
	for i := range queues {
		hour := trafficOf(&counts.Of(queues[i].Kind, queues[i].Queue).Hour)
		queues[i].Hour = &hour
	}
	return err
}

// printTraffic prints how the items of queues have ended.
func printTraffic(out io.Writer, queues []counted) error {
	var most [3]int64
	for _, q := range queues {
		for column, n := range q.Hour.ends() {
			most[column] = max(most[column], n)
		}
	}

	t := terminal.NewTable(out, "KIND", "QUEUE~", "FAILED>", "", "DONE>", "", "DEAD>", "")
	for _, q := range queues {
		row := []any{q.Kind, q.Queue}
		for column, n := range q.Hour.ends() {
			if row = append(row, n); terminal.Is(out) {
				row = append(row, terminal.Bar(n, most[column]))
			}
		}
		t.Row(row...)
	}
	return t.Print()
}

// paused says so of a queue that is, if anything is known of it.
func paused(info *client.QueueInfo) string {
	if info != nil && info.Settings.PauseUntil.After(time.Now()) {
		return "paused"
	}
	return ""
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
	send := func(request func(context.Context) error) error { return request(ctx) }
	return target.List(s.client, kind == subjects.FIFO, math.MaxInt, send)
}

// listed returns the queue, or if it has no name all queues, or only the FIFO queues.
func (q *queue) listed(ctx context.Context, s *session) (all []counted, err error) {
	if q.name != "" {
		return []counted{q.counted()}, nil
	}

	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		if q.fifo && kind == subjects.Priority {
			continue
		}
		list, err := s.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, of := range list {
			all = append(all, counted{Kind: kind.Short(), QueueCounts: of})
		}
	}

	return all, nil
}

// infos asks about queues.
func (s *session) infos(ctx context.Context, list []counted) ([]*client.QueueInfo, error) {
	return each(ctx, s, list, (*client.Queue).Info)
}

// each asks something about queues, several at a time.
func each[T any](
	ctx context.Context, s *session, list []counted,
	ask func(*client.Queue, context.Context) (T, error),
) ([]T, error) {
	answers := make([]T, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i, q := range list {
		group.Go(func() (err error) {
			answers[i], err = ask(target.Queue(s.client, q.isFIFO(), q.Queue), ctx)
			return err
		})
	}

	return answers, group.Wait()
}
