package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

func newLen(a *app) *cobra.Command {
	q := &queue{app: a}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "len QUEUE",
		Short:   "Print the number of items in a queue",
		Example: `  pq len jobs`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			return q.printLen(cmd, asJSON)
		},
	}
	q.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the whole reply as JSON")
	return cmd
}

func (q *queue) printLen(cmd *cobra.Command, asJSON bool) error {
	m, err := q.message(subjects.Len, subjects.Len)
	if err != nil {
		return err
	}
	reply, err := q.ask(cmd.Context(), m)
	if err != nil {
		return err
	}
	if asJSON {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply.Data)
		return err
	}
	var answer struct {
		Len *int64 `json:"len"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Len == nil {
		return fmt.Errorf("the reply is not that of a bridge: %.64q", reply.Data)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), *answer.Len)
	return err
}
