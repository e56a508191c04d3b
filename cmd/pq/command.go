package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// command makes cmd work on a queue, which may be optional. run gets the arguments that follow the
// name.
func (q *queue) command(cmd *cobra.Command, run func(args []string) error) *cobra.Command {
	q.cmd = cmd
	cmd.ValidArgsFunction = q.complete
	cmd.Flags().BoolVarP(&q.fifo, "fifo", "q", false,
		"QUEUE is a FIFO queue, which has no priorities")
	if q.maxHelp != "" {
		cmd.Flags().BoolVar(&q.max, "max", false, q.maxHelp)
	}

	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return run(nil)
		}
		q.name = args[0]
		if err := q.check(); err != nil {
			return err
		}
		return run(args[1:])
	}

	return cmd
}

// patience is how long somebody who has pressed the tab key waits.
const patience = time.Second

// complete completes the name of the queue, if somebody answers.
func (q *queue) complete(
	cmd *cobra.Command, args []string, _ string,
) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 || q.prepare(cmd.Flags()) != nil { // which cobra has not called
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	q.Timeout = min(q.Timeout, patience)
	list, _ := ask(q, "", func(ctx context.Context, s *session) ([]subjects.QueueCounts, error) {
		return s.list(ctx, q.kind())
	})
	for _, found := range list {
		names = append(names, terminal.Plain(found.Queue))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// request makes cmd a command of one request, whose reply it prints. If the request changes
// something, unknown says what an unknown outcome may mean.
func (q *queue) request(
	cmd *cobra.Command, unknown string, do func(context.Context, *session, []string) (reply, error),
) *cobra.Command {
	q.command(cmd, func(args []string) error {
		answer, err := ask(q, unknown,
			func(ctx context.Context, s *session) (reply, error) { return do(ctx, s, args) })
		if err != nil {
			return err
		}
		return q.print(answer)
	})
	q.addJSON(protocolJSON)
	return cmd
}
