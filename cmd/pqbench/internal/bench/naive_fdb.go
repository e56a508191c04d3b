//go:build fdb

package bench

import (
	"context"
	"slices"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/testenv/recipe"
)

// naive implements cluster: clients that use FoundationDB directly.
func (c *fdbCluster) naive(clients, priorities int, value []byte) (push, pop load) {
	queue := recipe.Queue{Items: c.queue}
	all := func(do func(tr fdb.Transaction, n int) (any, error)) load {
		return actors(slices.Repeat([]actor{{do: func(_ context.Context, n int) (int, error) {
			_, err := c.transact(func(tr fdb.Transaction) (any, error) { return do(tr, n) })
			return 1, err
		}}}, clients))
	}

	push = all(func(tr fdb.Transaction, n int) (any, error) {
		return nil, queue.Push(tr, int64(n%priorities), value)
	})
	pop = all(func(tr fdb.Transaction, _ int) (any, error) {
		value, err := queue.Pop(tr, false)
		if err == nil && value == nil {
			err = ErrEmpty
		}
		return nil, err
	})
	return push, pop
}
