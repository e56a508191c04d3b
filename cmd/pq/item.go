package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
	"github.com/pqbridge/pqbridge/subjects"
)

func newPeek(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.PeekMin, maxHelp: "print the last item: largest priority, newest"}
	var p printer
	count := flags.Count(1)
	cmd := q.command(&cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print the first item, or several, and leave them in the queue",
		Long: `Print the value of the item that pq pop would take, or with -n of several, and
leave them in the queue.

The value is printed as it is; on a terminal, and with -n, a newline follows.`,
		Example: `  pq peek jobs
  pq peek jobs -n 20 --json`,
	}, func([]string) error {
		if err := count.Check("-n"); err != nil {
			return err
		}
		if q.cmd.Flags().Changed("number") {
			q.verb = subjects.Items
			return q.peekMany(&p, int(count))
		}

		it, err := ask(q, "", func(ctx context.Context, s *session) (*item, error) {
			first, err := s.queue.PeekItem(ctx, q.max)
			if err != nil {
				return nil, err
			}
			return newItem(q, first), nil
		})
		if err != nil {
			return err
		}
		return p.print(q.cmd, it, true)
	})
	cmd.Flags().VarP(&count, "number", "n", "print up to `N` items")
	flags.WithoutDefault(cmd.Flags(), "number")
	p.addFlags(cmd)
	return cmd
}

// peekMany prints ready items.
func (q *queue) peekMany(p *printer, n int) error {
	_, err := ask(q, "", func(ctx context.Context, s *session) (none struct{}, err error) {
		left := n
		o := client.ItemsOptions{State: client.Ready, Max: q.max, ValueBytes: subjects.MaxValueBytes}
		_, err = s.pages(ctx, q, o, &left, func(page *client.ItemsPage) error {
			for i := range page.Items {
				it, err := s.whole(ctx, &page.Items[i])
				if errors.Is(err, client.ErrNotFound) {
					continue // it was popped meanwhile
				}
				if err == nil {
					err = p.print(q.cmd, it, false)
				}
				if err != nil {
					return err
				}
				left--
			}
			return nil
		})
		if err == nil && left == n {
			err = client.ErrEmpty
		}
		return none, err
	})
	return err
}

// whole returns an item of a page with all of its value and headers.
func (s *session) whole(ctx context.Context, from *client.StoredItem) (*item, error) {
	switch {
	case from.Code == subjects.CodeNotFound:
		return nil, errNoItem
	case from.Code == 0 && !from.ValueCut && !from.HeadersCut:
		return newStored(s.of, from), nil
	}

	found, state, err := s.queue.Get(ctx, from.ID)
	if err != nil {
		return nil, err
	}
	it := newItem(s.of, found)
	it.State = state
	return it, nil
}

func newGet(a *app) *cobra.Command {
	q := &queue{app: a, verb: subjects.Get}
	var p printer
	cmd := q.command(&cobra.Command{
		Use:   "get QUEUE ID...",
		Short: "Print items by their ids",
		Long: `Print the value of an item by its id, which pq push printed, and leave it in the
queue. It may be ready, leased or delayed: --json says which. With several ids,
or - for ids from standard input, a newline follows each value.`,
		Example: `  pq get jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json
  pq items jobs --match acme --all | pq get jobs -`,
	}, func(args []string) error { return q.get(&p, args) })
	p.addFlags(cmd)
	return cmd
}

// get prints items by their ids, and says which are not there.
func (q *queue) get(p *printer, args []string) error {
	t := &tally{done: "printed"}
	return q.byIDs(args, "", t, func(ctx context.Context, s *session, ids []string) (_ []string, err error) {
		list := []client.StoredItem{{ID: ids[0], ValueCut: true}} // one alone comes as a whole
		if t.all > 1 {
			list, err = s.queue.GetItems(ctx, ids, subjects.MaxValueBytes)
		}
		for i := 0; i < len(list) && err == nil; i++ {
			it, failed := s.whole(ctx, &list[i])
			t.add(list[i].ID, failed)
			if failed == nil {
				err = p.print(q.cmd, it, args[0] != "-" && len(args) == 1)
			}
		}
		return nil, err
	})
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
