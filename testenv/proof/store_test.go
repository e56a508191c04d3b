package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
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

// One transaction brings back 256 items at most, so a queue with more of them may look empty.
func TestEmptyTakesAllThatIsDue(t *testing.T) {
	const n = 1_000
	db := memkv.New(memkv.Options{})
	t.Cleanup(func() { must(t, db.Close()) })
	q, err := target(keyspace(), "q-0")
	must(t, err)

	batcher := fdbpq.NewBatcher(db, keyspace())
	batcher.SetNow(func() time.Time { return time.Now().Add(-time.Hour) })
	push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Delay: time.Minute}
	_, err = batcher.Apply(t.Context(), slices.Repeat([]fdbpq.Op{push}, n))
	must(t, err)

	taken := 0
	must(t, empty(t.Context(), db, "q-0", func(*fdbpq.Item) { taken++ }))
	if taken != n {
		t.Errorf("took %d items of %d", taken, n)
	}
}
