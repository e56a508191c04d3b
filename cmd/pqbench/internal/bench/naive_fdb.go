//go:build fdb

package bench

import (
	"context"
	"sync/atomic"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/testenv/recipe"
)

// naive implements cluster. Pushes cycle through the priorities.
func (c *fdbCluster) naive(clients, priorities int) (push, pop *load) {
	queue := recipe.Queue{Items: c.queue}
	var pushed atomic.Int64
	push = &load{conns: []conn{&naiveConn{clients, func(payload []byte) (bool, error) {
		priority := pushed.Add(1) % int64(priorities)
		_, err := c.transact(func(tr fdb.Transaction) (any, error) {
			return nil, queue.Push(tr, priority, payload)
		})
		return true, err
	}}}}
	pop = &load{conns: []conn{&naiveConn{clients, func([]byte) (bool, error) {
		value, err := c.transact(func(tr fdb.Transaction) (any, error) { return queue.Pop(tr, false) })
		return err == nil && value.([]byte) != nil, err
	}}}}
	return push, pop
}

// naiveConn has clients that use FoundationDB directly.
type naiveConn struct {
	clients int
	request func(payload []byte) (found bool, err error)
}

func (c *naiveConn) run(ctx context.Context, r *loadRun) {
	r.loop(ctx, c.clients, func() worker { return c })
}

// do implements worker, for all of them.
func (c *naiveConn) do(s step) (int, error) {
	found, err := c.request(s.payload)
	if err == nil && !found {
		err = ErrEmpty
	}
	return 1, err
}

func (c *naiveConn) end() error { return nil }

func (c *naiveConn) close() {}
