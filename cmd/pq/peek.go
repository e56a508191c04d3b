package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// peek is the command line of pq peek.
type peek struct {
	queue
	printer
	max bool
}

func newPeek(a *app) *cobra.Command {
	p := &peek{queue: queue{app: a, verb: subjects.PeekMin}}
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print the first item and leave it in the queue",
		Long: `Print the value of the item that pq pop would take, and leave it in the queue.

The value is printed as it is; on a terminal a newline follows.`,
		Example: `  pq peek jobs
  pq peek jobs --max --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return p.run(cmd)
		},
	}

	p.queue.addFlags(cmd)
	cmd.Flags().BoolVar(&p.max, "max", false, "print the last item: largest priority, newest")
	p.printer.addFlags(cmd)
	return cmd
}

func (p *peek) run(cmd *cobra.Command) error {
	if err := p.check(p.max); err != nil {
		return err
	}
	item, err := ask(cmd, &p.queue, "", func(ctx context.Context, s *session) (*client.Item, error) {
		item, err := s.queue.PeekItem(ctx, p.max)
		return item, s.explainEmpty(cmd, &p.queue, s.explain(err, ""))
	})
	if err != nil {
		return err
	}
	return p.print(cmd, &p.queue, item, true)
}
