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

// target is the queue as one connection reaches it.
type target interface {
	push(ctx context.Context, priority int64, m client.Message) error
	pop(ctx context.Context) (*client.Item, error)
	peek(ctx context.Context) (*client.Item, error)
	length(ctx context.Context) (int64, error)
}

func newTarget(nc *nats.Conn, o *Options) target {
	c := client.New(nc, client.WithGrammar(o.Grammar))
	if o.FIFO {
		return fifo{c.Queue(o.Queue)}
	}
	return priority{c.PriorityQueue(o.Queue)}
}

type priority struct{ *client.PriorityQueue }

func (q priority) push(ctx context.Context, priority int64, m client.Message) error {
	_, err := q.PushMsg(ctx, priority, m)
	return err
}
func (q priority) pop(ctx context.Context) (*client.Item, error)  { return q.PopMin(ctx) }
func (q priority) peek(ctx context.Context) (*client.Item, error) { return q.PeekMin(ctx) }
func (q priority) length(ctx context.Context) (int64, error)      { return q.Len(ctx) }

type fifo struct{ *client.Queue }

func (q fifo) push(ctx context.Context, _ int64, m client.Message) error {
	_, err := q.EnqueueMsg(ctx, m)
	return err
}
func (q fifo) pop(ctx context.Context) (*client.Item, error)  { return q.Dequeue(ctx) }
func (q fifo) peek(ctx context.Context) (*client.Item, error) { return q.Peek(ctx) }
func (q fifo) length(ctx context.Context) (int64, error)      { return q.Len(ctx) }

// A value begins with mark, the run and the item's number in that run, both in
// hexadecimal.
const (
	mark     = "pq-bench"
	runSize  = 8
	hexSize  = 12
	markSize = len(mark) + runSize + hexSize
)

// newRun names a run, so that the items of an earlier one are told apart.
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
var errForeign = errors.New("the queue has items that are not of pq bench: name another queue")

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

// check refuses a queue whose items are not the load's to pop.
func (o *Options) check(ctx context.Context, q target) error {
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
