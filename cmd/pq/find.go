package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

func newFind(a *app) *cobra.Command {
	q := &queue{app: a}
	cmd := &cobra.Command{
		Use:        "find ID",
		SuggestFor: []string{"where", "search", "locate"},
		Short:      "Find a job by its id, whichever queue it is in",
		Long: `Find a job by its id in all queues, and print the kind and the name of the
queue that it is in, its state, and its id there. It may be an item, a dead
letter, or a finished job that is kept.`,
		Example: `  pq find FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq find FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.cmd = cmd
		found, err := ask(q, "", func(ctx context.Context, s *session) (*target.Place, error) {
			return s.find(ctx, args[0])
		})
		if err != nil {
			return err
		}
		return q.printPlace(found)
	}
	q.cmd = cmd
	q.addJSON("print the item as JSON, as pq get does")
	return cmd
}

// find looks for a job in all queues.
func (s *session) find(ctx context.Context, id string) (*target.Place, error) {
	list, err := (&queue{}).listed(ctx, s)
	if err != nil {
		return nil, err
	}
	queues := make([]target.Place, len(list))
	for i, q := range list {
		queues[i] = target.Place{FIFO: q.isFIFO(), Queue: q.Queue}
	}

	get := func(ctx context.Context, at target.Place) ([]client.StoredItem, error) {
		return target.Queue(s.client, at.FIFO, at.Queue).GetItems(ctx, []string{id}, shownValue)
	}
	found, err := target.Find(ctx, queues, get)
	var reply *client.Error
	switch {
	case found != nil:
		return found, nil
	case err == nil:
		const text = "no job with this id is in any of %s: the id is misspelt; or it was popped, " +
			"removed or has expired; or it is done, and was not kept, or is not kept any more"
		return nil, notFound(fmt.Sprintf(text, terminal.Plural(len(list), "queue")))
	case errors.As(err, &reply) && errors.Is(err, client.ErrBadRequest):
		return nil, malformed([]string{id}, err)
	}
	return nil, fmt.Errorf("not found, and not all queues could be asked: %w", err)
}

// printPlace prints where a job is.
func (q *queue) printPlace(at *target.Place) error {
	of := &queue{app: q.app, cmd: q.cmd, name: at.Queue, fifo: at.FIFO, json: q.json}
	it := newStored(of, &at.Item)
	if q.json {
		it.Kind = of.kind().Short()
		return q.print(reply{json: it})
	}

	if terminal.Is(q.cmd.OutOrStdout()) && it.DeadLetter != nil {
		q.say("%s", terminal.Plain(it.DeadLetter.String()))
	}
	t := terminal.NewTable(q.cmd.OutOrStdout(), "KIND", "QUEUE~", "STATE", "ID")
	t.Row(of.kind().Short(), at.Queue, string(at.Item.State), at.Item.ID)
	return t.Print()
}
