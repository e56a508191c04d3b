package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/subjects"
)

func newPeek(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.PeekMin, maxHelp: "print the last item: largest priority, newest"}
	return printing(q, &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print the first item and leave it in the queue",
		Long: `Print the value of the item that pq pop would take, and leave it in the queue.

The value is printed as it is; on a terminal a newline follows.`,
		Example: `  pq peek jobs
  pq peek jobs --max --json`,
	}, func(ctx context.Context, s *session, _ []string) (*item, error) {
		first, err := s.queue.PeekItem(ctx, q.max)
		if err != nil {
			return nil, s.explainEmpty(s.explain(err, ""))
		}
		return newItem(q, first), nil
	})
}

func newGet(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Get}
	return printing(q, &cobra.Command{
		Use:   "get QUEUE ID",
		Short: "Print an item by its id",
		Long: `Print the value of an item by its id, which pq push printed, and leave it in the
queue. It may be ready, leased or delayed: --json says which.`,
		Example: `  pq get jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq get jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json`,
	}, func(ctx context.Context, s *session, args []string) (*item, error) {
		found, state, err := s.queue.Get(ctx, args[0])
		if err != nil {
			return nil, s.absent(ctx, err)
		}
		it := newItem(q, found)
		it.State = state
		return it, nil
	})
}

// printing makes cmd a command that prints the item that find finds.
func printing(q *queue, cmd *cobra.Command, find func(context.Context, *session, []string) (*item, error)) *cobra.Command {
	var p printer
	q.command(cmd, func(args []string) error {
		it, err := ask(q, "", func(ctx context.Context, s *session) (*item, error) { return find(ctx, s, args) })
		if err != nil {
			return err
		}
		return p.print(cmd, it, true)
	})
	p.addFlags(cmd)
	return cmd
}

func newRank(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Rank, maxHelp: "by pops of the last item"}
	return q.request(&cobra.Command{
		Use:   "rank QUEUE ID",
		Short: "Print how many items come before one",
		Long: `Print how many items would be popped before the one with this id. A + follows
if there may be more, which can be from 10,000 on.`,
		Example: `  pq rank jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq rank jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --max --json`,
	}, "", func(ctx context.Context, s *session, args []string) (reply, error) {
		n, atLeast, err := s.queue.RankItem(ctx, args[0], q.max)
		more := ""
		if atLeast {
			more = "+"
		}
		return reply{fmt.Sprintf("%d%s\n", n, more), subjects.Ranked{Rank: n, AtLeast: atLeast}}, s.absent(ctx, err)
	})
}

func newMv(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Move}
	var priority flags.Priority
	cmd := q.request(&cobra.Command{
		Use:   "mv QUEUE ID PRIORITY",
		Short: "Move an item to another priority",
		Long: `Move an item of a priority queue to the end of another priority, and print the
id that it has there. An item that is leased cannot be moved.`,
		Example: `  pq mv jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo 9
  pq mv jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo -9`,
	}, "the item may have been moved", func(ctx context.Context, s *session, args []string) (reply, error) {
		id, err := s.queue.Move(ctx, args[0], int64(priority))
		if errors.Is(err, client.ErrLeased) {
			err = errors.New("the item is leased: try again when it is back")
		}
		return reply{id + "\n", subjects.Moved{Queue: q.name, ID: id, Priority: int64(priority)}}, s.absent(ctx, err)
	})

	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if err := priority.Set(args[2]); err != nil {
			return exit.UsageError{Err: err}
		}
		return nil
	}
	return cmd
}

func newRm(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Remove}
	return q.command(&cobra.Command{
		Use:   "rm QUEUE ID...",
		Short: "Remove items by their ids",
		Long: `Remove items by their ids, whichever state they are in. Who has leased one gets
an error when it acknowledges it. The first id that is not there ends it.`,
		Example: "  pq rm jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo",
	}, func(ids []string) error {
		_, err := ask(q, "the item may have been removed", func(ctx context.Context, s *session) (struct{}, error) {
			for n, id := range ids {
				if err := s.queue.Remove(ctx, id); err != nil {
					err = s.absent(ctx, err)
					if len(ids) > 1 {
						err = fmt.Errorf("%s, after %s: %w", id, items(int64(n), ""), err)
					}
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		return err
	})
}

// absent explains that an item is not in the queue.
func (s *session) absent(ctx context.Context, err error) error {
	if err = s.explain(err, "it may be done"); !errors.Is(err, client.ErrNotFound) {
		return err
	}
	if text := s.suggest(ctx); text != "" {
		return fmt.Errorf("%w: %s", errNoItem, text)
	}
	return fmt.Errorf("%w: it was popped, removed or moved, or the id is misspelt (pq peek %s --json prints ids)", errNoItem, s.of.name)
}

// errNoItem is ErrNotFound with a text for items.
var errNoItem = noItem{}

type noItem struct{}

func (noItem) Error() string   { return "no item has this id" }
func (noItem) Is(e error) bool { return e == client.ErrNotFound }
