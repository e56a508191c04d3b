package proof_test

import (
	"context"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// handle is a queue of either kind. A FIFO queue has no priorities and no back.
type handle struct {
	name string
	jobs *client.PriorityQueue
	fifo *client.Queue
}

func queueOf(c *client.Client, name string) handle {
	return handle{name, c.PriorityQueue(name), c.Queue(name)}
}

// managed is what both kinds of queues have in common.
type managed interface {
	Len(context.Context) (int64, error)
	Info(context.Context) (*client.QueueInfo, error)
	Configure(context.Context, client.Settings, ...string) (client.Settings, error)
	NewProducer(client.ProducerOptions) (*client.Producer, error)
	NewWorker(client.Work, client.WorkerOptions) (*client.Worker, error)
}

func (h handle) managed() managed {
	if isFIFO(h.name) {
		return h.fifo
	}
	return h.jobs
}

// choose returns what an operation calls: that of a FIFO queue, or that of one end of a priority queue.
func choose[T any](h handle, k books.Kind, fifo, front, end T) T {
	switch {
	case isFIFO(h.name):
		return fifo
	case k.Back():
		return end
	}
	return front
}

func (h handle) push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error) {
	if isFIFO(h.name) {
		return h.fifo.EnqueueMsg(ctx, m)
	}
	return h.jobs.PushMsg(ctx, priority, m)
}
