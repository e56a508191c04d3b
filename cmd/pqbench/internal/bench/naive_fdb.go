//go:build fdb

package bench

import (
	"context"
	"sync/atomic"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/pqbridge/pqbridge/testenv/recipe"
)

// naive implements cluster. Pushes go through the priorities in turn.
func (c *fdbCluster) naive(clients, priorities int) (push, pop *load) {
	queue := recipe.Queue{Items: c.queue}
	var pushed atomic.Int64
	push = &load{conns: []conn{&direct{clients, func(payload []byte) (bool, error) {
		priority := pushed.Add(1) % int64(priorities)
		_, err := c.transact(func(tr fdb.Transaction) (any, error) {
			return nil, queue.Push(tr, priority, payload)
		})
		return true, err
	}}}}
	pop = &load{conns: []conn{&direct{clients, func([]byte) (bool, error) {
		value, err := c.transact(func(tr fdb.Transaction) (any, error) { return queue.Pop(tr, false) })
		return err == nil && value.([]byte) != nil, err
	}}}}
	return push, pop
}

// direct is clients that do not use NATS.
type direct struct {
	clients int
	request func(payload []byte) (found bool, err error)
}

func (d *direct) run(ctx context.Context, r *loadRun) {
	r.loop(ctx, d.clients, func(s step) bool {
		found, err := d.request(s.payload)
		switch {
		case err != nil:
			r.fail(err)
		case !found:
			r.ranDry()
		}
		return found
	})
}

func (d *direct) close() {}
