package main

import (
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// peek is the command line of pq peek.
type peek struct {
	queue
	printer
	max bool
}

func newPeek(a *app) *cobra.Command {
	p := &peek{queue: queue{app: a}}
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print the value of the first item and leave it",
		Long: `Print the value of the item that pq pop would take, and leave it in the queue.

The value is printed as it is, with a newline added on a terminal only.`,
		Example: `  pq peek jobs
  pq peek jobs --max --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			return p.run(cmd)
		},
	}
	p.queue.addFlags(cmd)
	p.printer.addFlags(cmd)
	cmd.Flags().BoolVar(&p.max, "max", false, "look at the largest priority, the newest of those that share it")
	return cmd
}

func (p *peek) run(cmd *cobra.Command) error {
	m, err := p.endMessage(p.max, subjects.PeekMin, subjects.PeekMax, subjects.Peek)
	if err != nil {
		return err
	}
	reply, err := p.ask(cmd.Context(), m)
	if err != nil {
		return err
	}
	return p.print(cmd.OutOrStdout(), reply, p.name, true)
}
