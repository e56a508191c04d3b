package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func newLen(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Len}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "len QUEUE",
		Short: "Print the number of items",
		Long:  "Print the number of items in a queue.",
		Example: `  pq len jobs
  pq len --fifo mail --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			return q.printLen(cmd, asJSON)
		},
	}

	q.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON with queue and len")
	return cmd
}

func (q *queue) printLen(cmd *cobra.Command, asJSON bool) error {
	if err := q.check(false); err != nil {
		return err
	}

	n, err := ask(cmd, q, "", func(ctx context.Context, s *session) (int64, error) {
		n, err := s.queue.Len(ctx)
		if err == nil && n == 0 && terminal.Is(cmd.ErrOrStderr()) {
			s.noteUnused(ctx, cmd, q)
		}
		return n, err
	})
	if err != nil {
		return err
	}

	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(subjects.Length{Queue: q.name, Len: n})
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), n)
	return err
}
