package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/subjects"
)

func newPeek(a *app) *cobra.Command {
	q := &queue{app: a, maxHelp: "print the last item: largest priority, newest"}
	cmd := q.command(&cobra.Command{
		Use:   "peek QUEUE",
		Short: "Print the first item, and leave it in the queue",
		Long: `Print the value of the item that pq pop would take, and leave it in the queue;
on a terminal, a newline follows and control characters are escaped. pq items
lists several.`,
		Example: `  pq peek jobs
  pq items jobs --state ready --limit 20 | pq get jobs -`,
	}, func([]string) error {
		first, err := ask(q, "", func(ctx context.Context, s *session) (*client.Item, error) {
			if q.max {
				return s.queue.PeekMax(ctx)
			}
			return s.queue.Peek(ctx)
		})
		if err != nil {
			return err
		}
		return q.printItem(newItem(q, first), true)
	})
	q.addJSON(itemJSON)
	return cmd
}

// whole returns an item of a page with all of its value and headers. With buried, one that is not
// there may be a dead letter.
func (s *session) whole(
	ctx context.Context, from *client.StoredItem, buried bool,
) (*item, error) {
	switch {
	case from.Code == subjects.CodeNotFound && !buried:
		return nil, errNoItem
	case from.Code == 0 && !from.ValueCut && !from.HeadersCut:
		return newStored(s.of, from), nil
	}

	it, err := s.get(s.queue.Get(ctx, from.ID))
	if err == nil && from.Code == 0 { // the page says more of it
		stored := newStored(s.of, from)
		maps.Copy(stored.Headers, it.Headers) // without some if the item fills a message
		stored.ValueCut, stored.unique = false, cmp.Or(it.unique, stored.unique)
		stored.Value, stored.Base64, stored.bytes = it.Value, it.Base64, it.bytes
		it = stored
	}
	return it, err
}

// get returns what a Get has returned as it is printed.
func (s *session) get(found *client.Item, state client.State, err error) (*item, error) {
	if err != nil {
		return nil, err
	}
	it := newItem(s.of, found)
	it.State = state
	return it, nil
}

func newGet(a *app) *cobra.Command {
	q := &queue{app: a}
	var msgID string
	cmd := q.command(&cobra.Command{
		Use:   "get QUEUE [ID...]",
		Short: "Print items by their ids",
		Long: `Print the value of an item by its id, which pq push printed, or by the message
id that it was pushed with, and leave it in the queue. It may be ready, leased
or delayed, done and kept, or among the dead letters of the queue: --json says
which, and who has it, or how long it took. With several ids, or - for ids from
standard input, a newline follows each value, and dead letters are not looked
for.`,
		Example: `  pq get jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --json
  pq get jobs --msg-id invoice-17
  pq items jobs --match acme --all | pq get jobs -`,
	}, func(ids []string) error {
		given := q.cmd.Flags().Changed("msg-id")
		switch {
		case given && len(ids) > 0:
			return exit.Usagef("an ID and --msg-id: leave out one of them")
		case given:
			return q.getByMsgID(msgID)
		case len(ids) == 0:
			return exit.Usagef("ID is missing: want an ID or --msg-id")
		}
		return q.get(ids)
	})
	cmd.Flags().StringVar(&msgID, "msg-id", "", "print the item that was pushed with this `ID`")
	q.addJSON(itemJSON)
	return cmd
}

// getByMsgID prints the item of a push with a message id.
func (q *queue) getByMsgID(msgID string) error {
	found, err := ask(q, "", func(ctx context.Context, s *session) (*item, error) {
		it, err := s.get(s.queue.GetByMsgID(ctx, msgID))
		return it, s.absent(ctx, err)
	})
	if err != nil {
		return err
	}
	return q.printItem(found, true)
}

// get prints items by their ids, and says which are not there.
func (q *queue) get(args []string) error {
	counts := &idResults{done: "printed"}
	do := func(ctx context.Context, s *session, ids []string) ([]string, error) {
		list, err := s.queue.GetItems(ctx, ids, subjects.MaxValueBytes)
		if refused := malformed(ids, err); refused != nil {
			counts.add(ids[0], refused)
			return nil, nil
		}
		for i := 0; i < len(list) && err == nil; i++ {
			it, failed := s.whole(ctx, &list[i], counts.all == 1)
			counts.add(list[i].ID, failed)
			if failed == nil {
				err = q.printItem(it, args[0] != "-" && len(args) == 1)
			}
		}
		return nil, err
	}

	return q.byIDs(args, "", counts, do)
}

func newRank(a *app) *cobra.Command {
	q := &queue{app: a, maxHelp: "count from the last: largest priority, newest"}
	return q.request(&cobra.Command{
		Use:   "rank QUEUE ID",
		Short: "Print how many items come before one",
		Long: `Print how many items would be popped before the one with this id. A + follows
if there may be more, which can be from 10,000 on.`,
		Example: `  pq rank jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo
  pq rank jobs FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo --max --json`,
	}, "", func(ctx context.Context, s *session, args []string) (reply, error) {
		rank := s.queue.Rank
		if q.max {
			rank = s.queue.RankMax
		}

		n, atLeast, err := rank(ctx, args[0])
		more := ""
		if atLeast {
			more = "+"
		}
		answer := reply{fmt.Sprintf("%d%s\n", n, more), subjects.Ranked{Rank: n, AtLeast: atLeast}}
		return answer, s.absent(ctx, err)
	})
}
