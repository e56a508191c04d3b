package load

import (
	"bytes"
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

// queue is the queue of a load, over one of its connections.
type queue struct {
	*client.Queue
	client *client.Client
}

func openQueue(nc *nats.Conn, o *Options) *queue {
	c := client.New(nc, client.WithGrammar(o.Grammar), client.WithTimeout(o.Timeout))
	return &queue{target.Queue(c, o.FIFO, o.Queue), c}
}

// ownQueue, alone or followed by a hyphen, begins the names of queues for loads.
const ownQueue = "bench"

// mark begins the values of all loads.
const mark = "pq-bench"

// value returns a value of the given size.
func value(size int) []byte {
	b := append(make([]byte, 0, size), mark...)
	for len(b) < size {
		b = append(b, 'a'+byte(len(b)%26))
	}
	return b
}

// errForeign means that the queue has items of other programs.
var errForeign = errors.New("the queue has items that pq bench did not push: name another queue")

// isOurs reports whether a load pushed the item.
func isOurs(item *client.Item) bool { return bytes.HasPrefix(item.Value, []byte(mark)) }

// check refuses a queue whose items are not the load's to take.
func (o *Options) check(ctx context.Context, q *queue) error {
	if o.Mode == Push {
		return nil
	}

	item, err := q.Peek(ctx)
	if errors.Is(err, client.ErrEmpty) {
		return nil
	}
	if err == nil && !isOurs(item) {
		err = errForeign
	}
	return err
}
