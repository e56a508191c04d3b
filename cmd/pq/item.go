package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/subjects"
)

// absent explains that an item is not in the queue.
func (s *session) absent(ctx context.Context, q *queue, id string, err error) error {
	if err = s.explain(err, "it may be done"); !errors.Is(err, client.ErrNotFound) {
		return err
	}
	if text := s.suggest(ctx, q); text != "" {
		return fmt.Errorf("%w: %s", errNoItem, text)
	}
	return fmt.Errorf("%w: it was popped, removed or moved, or the id is misspelt (pq peek %s --json prints ids)", errNoItem, q.name)
}

// errNoItem is ErrNotFound with a text for items.
var errNoItem = noItem{}

type noItem struct{}

func (noItem) Error() string   { return "no item has this id" }
func (noItem) Is(e error) bool { return e == client.ErrNotFound }

func newGet(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Get}
	var p printer
	cmd := &cobra.Command{
		Use:   "get QUEUE ID",
		Short: "Print an item by its id",
		Long: `Print the value of an item by its id, which pq push printed, and leave it in the
queue. It may be ready, leased or delayed: --json says which.`,
		Example: `  pq get jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq get jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			if err := q.check(false); err != nil {
				return err
			}

			it, err := ask(cmd, q, "", func(ctx context.Context, s *session) (*item, error) {
				found, state, err := s.queue.Get(ctx, args[1])
				if err != nil {
					return nil, s.absent(ctx, q, args[1], err)
				}
				it := newItem(q, found)
				it.State, it.bytes = state, found.Value
				return it, nil
			})

			if err != nil {
				return err
			}
			return p.write(cmd, it, true)
		},
	}

	q.addFlags(cmd)
	p.addFlags(cmd)
	return cmd
}

func newRm(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Remove}
	cmd := &cobra.Command{
		Use:   "rm QUEUE ID...",
		Short: "Remove items by their ids",
		Long: `Remove items by their ids, whichever state they are in. Who has leased one gets
an error when it acknowledges it. The first id that is not there ends it.`,
		Example: "  pq rm jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo",
		Args:    arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			if err := q.check(false); err != nil {
				return err
			}

			_, err := ask(cmd, q, "the item may have been removed", func(ctx context.Context, s *session) (struct{}, error) {
				for n, id := range args[1:] {
					if err := s.queue.Remove(ctx, id); err != nil {
						err = s.absent(ctx, q, id, err)
						if len(args) > 2 {
							err = fmt.Errorf("%s, after %s: %w", id, items(int64(n), ""), err)
						}
						return struct{}{}, err
					}
				}
				return struct{}{}, nil
			})
			return err
		},
	}

	q.addFlags(cmd)
	return cmd
}

func newMv(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Move}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mv QUEUE ID PRIORITY",
		Short: "Move an item to another priority",
		Long: `Move an item of a priority queue to the end of another priority, and print the
id that it has there. An item that is leased cannot be moved.`,
		Example: `  pq mv jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo 9
  pq mv jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo -9`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			if err := q.check(false); err != nil {
				return err
			}
			var priority flags.Priority
			if err := priority.Set(args[2]); err != nil {
				return exit.UsageError{Err: err}
			}

			id, err := ask(cmd, q, "the item may have been moved", func(ctx context.Context, s *session) (string, error) {
				id, err := s.queue.Move(ctx, args[1], int64(priority))
				if errors.Is(err, client.ErrLeased) {
					err = errors.New("the item is leased: try again when it is back")
				}
				return id, s.absent(ctx, q, args[1], err)
			})

			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(subjects.Moved{Queue: q.name, ID: id, Priority: int64(priority)})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		},
	}

	cmd.Flags().SortFlags = false
	cmd.ValidArgsFunction = q.complete
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the protocol defines it")
	return cmd
}

func newRank(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Rank}
	var max, asJSON bool
	cmd := &cobra.Command{
		Use:   "rank QUEUE ID",
		Short: "Print how many items come before one",
		Long: `Print how many items would be popped before the one with this id. A + follows
if there may be more, which can be from 10,000 on.`,
		Example: `  pq rank jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq rank jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --max --json`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.name = args[0]
			if err := q.check(max); err != nil {
				return err
			}

			ranked, err := ask(cmd, q, "", func(ctx context.Context, s *session) (subjects.Ranked, error) {
				n, atLeast, err := s.queue.RankItem(ctx, args[1], max)
				return subjects.Ranked{Rank: n, AtLeast: atLeast}, s.absent(ctx, q, args[1], err)
			})
			if err != nil {
				return err
			}

			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(ranked)
			}
			more := ""
			if ranked.AtLeast {
				more = "+"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d%s\n", ranked.Rank, more)
			return err
		},
	}

	q.addFlags(cmd)
	cmd.Flags().BoolVar(&max, "max", false, "by pops of the last item")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the protocol defines it")
	return cmd
}
