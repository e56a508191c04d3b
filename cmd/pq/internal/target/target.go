// Package target lets the commands of pq treat priority queues and FIFO queues
// alike.
package target

import (
	"context"

	"github.com/pqbridge/pqbridge/client"
)

// Queue is a queue of either kind. A FIFO queue has no priorities, so there
// priority and max mean nothing.
type Queue interface {
	// Push adds an item.
	Push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error)
	// Pop takes the first item; with max, the last.
	Pop(ctx context.Context, max bool, options ...client.PopOption) (*client.Item, error)
	// Peek returns the item that Pop would take.
	Peek(ctx context.Context, max bool) (*client.Item, error)
	// Len returns the number of items.
	Len(ctx context.Context) (int64, error)
}

// New returns the queue of that kind and name.
func New(c *client.Client, fifo bool, name string) Queue {
	if fifo {
		return fifoQueue{c.Queue(name)}
	}
	return priorityQueue{c.PriorityQueue(name)}
}

type priorityQueue struct{ *client.PriorityQueue }

func (q priorityQueue) Push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error) {
	return q.PushMsg(ctx, priority, m)
}

func (q priorityQueue) Pop(ctx context.Context, max bool, options ...client.PopOption) (*client.Item, error) {
	if max {
		return q.PopMax(ctx, options...)
	}
	return q.PopMin(ctx, options...)
}

func (q priorityQueue) Peek(ctx context.Context, max bool) (*client.Item, error) {
	if max {
		return q.PeekMax(ctx)
	}
	return q.PeekMin(ctx)
}

type fifoQueue struct{ *client.Queue }

func (q fifoQueue) Push(ctx context.Context, _ int64, m client.Message) (client.PushAck, error) {
	return q.EnqueueMsg(ctx, m)
}

func (q fifoQueue) Pop(ctx context.Context, _ bool, options ...client.PopOption) (*client.Item, error) {
	return q.Dequeue(ctx, options...)
}

func (q fifoQueue) Peek(ctx context.Context, _ bool) (*client.Item, error) {
	return q.Queue.Peek(ctx)
}
