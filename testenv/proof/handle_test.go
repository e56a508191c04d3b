package proof_test

import (
	"context"

	"github.com/pqbridge/pqbridge/client"
)

// handle is a queue of either kind. A FIFO queue has no priorities and no back.
type handle struct {
	*client.PriorityQueue
	fifo *client.Queue // nil in a priority queue
}

func (c *caller) queue(name string) handle {
	if isFIFO(name) {
		return handle{fifo: c.client.Queue(name)}
	}
	return handle{PriorityQueue: c.client.PriorityQueue(name)}
}

// Len returns the number of items.
func (h handle) Len(ctx context.Context) (int64, error) {
	if h.fifo != nil {
		return h.fifo.Len(ctx)
	}
	return h.PriorityQueue.Len(ctx)
}

func (h handle) push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error) {
	if h.fifo != nil {
		return h.fifo.EnqueueMsg(ctx, m)
	}
	return h.PushMsg(ctx, priority, m)
}

func (h handle) peek(ctx context.Context, back bool) (*client.Item, error) {
	switch {
	case h.fifo != nil:
		return h.fifo.Peek(ctx)
	case back:
		return h.PeekMax(ctx)
	}
	return h.PeekMin(ctx)
}

func (h handle) pop(ctx context.Context, back bool, options ...client.PopOption) (*client.Item, error) {
	switch {
	case h.fifo != nil:
		return h.fifo.Dequeue(ctx, options...)
	case back:
		return h.PopMax(ctx, options...)
	}
	return h.PopMin(ctx, options...)
}

func (h handle) popBatch(ctx context.Context, back bool, n int, options ...client.PopOption) ([]*client.Item, error) {
	switch {
	case h.fifo != nil:
		return h.fifo.DequeueBatch(ctx, n, options...)
	case back:
		return h.PopMaxBatch(ctx, n, options...)
	}
	return h.PopMinBatch(ctx, n, options...)
}

func (h handle) lease(ctx context.Context, back bool, options ...client.LeaseOption) (*client.Delivery, error) {
	switch {
	case h.fifo != nil:
		return h.fifo.Lease(ctx, options...)
	case back:
		return h.LeaseMax(ctx, options...)
	}
	return h.LeaseMin(ctx, options...)
}

func (h handle) leaseBatch(ctx context.Context, back bool, n int, options ...client.LeaseOption) ([]*client.Delivery, error) {
	switch {
	case h.fifo != nil:
		return h.fifo.LeaseBatch(ctx, n, options...)
	case back:
		return h.LeaseMaxBatch(ctx, n, options...)
	}
	return h.LeaseMinBatch(ctx, n, options...)
}
