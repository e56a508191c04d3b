package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

func newConsumers(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Info}
	var asJSON bool
	cmd := q.command(&cobra.Command{
		Use:   "consumers QUEUE",
		Short: "List the JetStream consumers of a queue",
		Long: `List the consumers that programs written for JetStream have created: the end of
the queue that each takes items from, and its limits, - for those that it does
not set. min and max, which each queue has, are not listed. Into a pipe, tabs
separate the columns, and there is no heading.`,
		Example: `  pq consumers jobs
  pq consumers --fifo mail --json`,
	}, func([]string) error {
		unused := false
		info, err := ask(q, "", func(ctx context.Context, s *session) (*client.QueueInfo, error) {
			info, err := s.queue.Info(ctx)
			unused = err == nil && isUnused(info) && s.noteUnused(ctx)
			return info, err
		})
		if err != nil || unused {
			return err
		}
		return q.printConsumers(info, asJSON)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each consumer")
	return cmd
}

func (q *queue) printConsumers(info *client.QueueInfo, asJSON bool) error {
	list := info.Consumers
	out := q.cmd.OutOrStdout()
	if len(list) == 0 {
		own := "min and max, which every queue has"
		if q.fifo {
			own = "min, which every FIFO queue has"
		}
		_, _ = fmt.Fprintln(q.cmd.ErrOrStderr(), "pq: none besides", own) // there is nowhere to report a failure
		return nil
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		for _, c := range list {
			if err := encoder.Encode(c); err != nil {
				return err
			}
		}
		return nil
	}
	return consumerTable(out, list).Print()
}

// consumerTable is the table of consumers, with a dash for what one leaves to the queue's settings.
func consumerTable(out io.Writer, list []client.QueueConsumer) *terminal.Table {
	t := terminal.NewTable(out, terminal.Column{Title: "NAME"}, terminal.Column{Title: "ORDER"},
		terminal.Column{Title: "ACK WAIT", Align: terminal.Right}, terminal.Column{Title: "MAX DELIVER", Align: terminal.Right},
		terminal.Column{Title: "MAX PENDING", Align: terminal.Right}, terminal.Column{Title: "CREATED"},
		terminal.Column{Title: "DESCRIPTION", Align: terminal.Snipped})
	for i := range list {
		c := &list[i]
		created := "-"
		if !c.Created.IsZero() {
			created = c.Created.UTC().Format(time.RFC3339)
		}
		t.Row(terminal.Plain(c.Name), cmp.Or(c.Order, "-"), orDash(c.AckWait), orDash(int64(c.MaxDeliver)), orDash(int64(c.MaxAckPending)),
			created, cmp.Or(terminal.Plain(c.Description), "-"))
	}
	return t
}

// orDash returns a value, or a dash for none.
func orDash[T comparable](value T) any {
	var none T
	if value == none {
		return "-"
	}
	return value
}
