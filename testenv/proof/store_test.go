package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// drainStore removes all items of all queues, without bridges, and returns
// them by queue.
func drainStore(ctx context.Context, db kv.Database) (map[string][]books.Item, error) {
	k := keyspace()
	left := map[string][]books.Item{}
	for _, list := range []func(kv.Reader, string, int) kv.Future[[]string]{k.PriorityQueues, k.Queues} {
		last := ""
		for {
			names, err := kv.ReadTransact(ctx, db, func(rd kv.Reader) ([]string, error) { return list(rd, last, 100).Get() })
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				err := empty(ctx, db, name, func(item *fdbpq.Item) {
					left[name] = append(left[name], books.Item{Value: numberOf(item), ID: item.ID.String()})
				})
				if err != nil {
					return nil, err
				}
			}
			if len(names) < 100 {
				break
			}
			last = names[len(names)-1]
		}
	}
	return left, nil
}

// numberOf is the value of an item, without padding.
func numberOf(item *fdbpq.Item) string {
	value, _, _ := strings.Cut(string(item.Value), " ")
	return value
}

// empty removes what is left in a queue, and tells of each item.
func empty(ctx context.Context, db kv.Database, name string, tell func(item *fdbpq.Item)) error {
	q, err := target(keyspace(), name)
	ops := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpPop, Queue: q}}, 500)
	batcher := fdbpq.NewBatcher(db, keyspace())
	for err == nil {
		var results []fdbpq.Result
		if results, err = batcher.Apply(ctx, ops); err != nil {
			break
		}
		for _, result := range results {
			if errors.Is(result.Err, fdbpq.ErrEmpty) {
				return nil
			}
			if err = result.Err; err != nil {
				break
			}
			tell(&result.Item)
		}
	}
	return fmt.Errorf("queue %s: %w", name, err)
}
