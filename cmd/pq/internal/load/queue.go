package load

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

// queue is the queue of a load, over one of its connections.
type queue struct {
	client *client.Client
	push   func(context.Context, []client.PushItem) error
	pop    func(ctx context.Context, n int) ([]*client.Item, error)
	lease  func(ctx context.Context, n int) ([]*client.Delivery, error)
	peek   func(context.Context) (*client.Item, error)
	length func(context.Context) (int64, error)
	worker func(client.Work, client.WorkerOptions) (*client.Worker, error)
}

func openQueue(nc *nats.Conn, o *Options) *queue {
	c := client.New(nc, client.WithGrammar(o.Grammar))
	if o.FIFO {
		q := c.Queue(o.Queue)
		return &queue{
			client: c, peek: q.Peek, length: q.Len, worker: q.NewWorker,
			pop: oneOrMany(q.Dequeue, q.DequeueBatch), lease: oneOrMany(q.Lease, q.LeaseBatch),
			push: func(ctx context.Context, items []client.PushItem) error {
				messages := make([]client.Message, len(items))
				for i := range items {
					messages[i] = items[i].Message
				}
				if len(items) > 1 {
					_, err := q.EnqueueBatch(ctx, messages)
					return err
				}
				_, err := q.EnqueueMsg(ctx, messages[0])
				return err
			},
		}
	}

	q := c.PriorityQueue(o.Queue)
	return &queue{
		client: c, peek: q.PeekMin, length: q.Len, worker: q.NewWorker,
		pop: oneOrMany(q.PopMin, q.PopMinBatch), lease: oneOrMany(q.LeaseMin, q.LeaseMinBatch),
		push: func(ctx context.Context, items []client.PushItem) error {
			if len(items) > 1 {
				_, err := q.PushBatch(ctx, items)
				return err
			}
			_, err := q.PushMsg(ctx, items[0].Priority, items[0].Message)
			return err
		},
	}
}

// oneOrMany returns a function that asks for a batch only if it is to have more than one item.
func oneOrMany[T, O any](
	one func(context.Context, ...O) (*T, error), many func(context.Context, int, ...O) ([]*T, error),
) func(context.Context, int) ([]*T, error) {
	return func(ctx context.Context, n int) ([]*T, error) {
		if n > 1 {
			return many(ctx, n)
		}
		item, err := one(ctx)
		if err != nil {
			return nil, err
		}
		return []*T{item}, nil
	}
}

// A value begins with mark, the run and the item's number in that run, both in
// hexadecimal.
const (
	mark     = "pq-bench"
	runSize  = 8
	hexSize  = 12
	markSize = len(mark) + runSize + hexSize
)

// newRun names a run, which tells its items from those of earlier runs.
func newRun() string {
	b := make([]byte, runSize/2)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(b)
}

// value is the value of an item, of the given size.
func value(run string, number int64, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size), "%s%s%0*x", mark, run, hexSize, number)
	for len(b) < size {
		b = append(b, 'a'+byte(len(b)%26))
	}
	return b
}

// errForeign means that the queue has items of other programs.
var errForeign = errors.New("the queue has items that pq bench did not push: name another queue")

// parse returns the run and the number of an item.
func parse(value []byte) (run string, number int64, err error) {
	if len(value) < markSize || string(value[:len(mark)]) != mark {
		return "", 0, errForeign
	}
	run = string(value[len(mark):][:runSize])
	number, err = strconv.ParseInt(string(value[len(mark)+runSize:][:hexSize]), 16, 64)
	if err != nil {
		return "", 0, errForeign
	}
	return run, number, nil
}

// check refuses a queue whose items are not the load's to take.
func (o *Options) check(ctx context.Context, q *queue) error {
	if o.Mode == Push && !o.Verify {
		return nil
	}

	item, err := q.peek(ctx)
	switch {
	case errors.Is(err, client.ErrEmpty):
		return nil
	case err != nil:
		return err
	}

	if _, _, err := parse(item.Value); err != nil {
		return err
	}
	if !o.Verify {
		return nil
	}

	n, err := q.length(ctx)
	if err == nil {
		err = fmt.Errorf("the queue has %d items of an earlier load: it must be empty to be verified", n)
	}
	return err
}
