package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// numberOf is the value of an item, without padding.
func numberOf(item *fdbpq.Item) string {
	value, _, _ := strings.Cut(string(item.Value), " ")
	return value
}

// empty removes the items left in a queue, and reports each.
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
			if errors.Is(result.Err, fdbpq.ErrNoRoom) {
				break // the next transaction goes on, also if this one has found nothing so far
			}
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
