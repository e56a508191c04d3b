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
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

// queue is the queue of a load, over one of its connections.
type queue struct {
	target.Queue
	client *client.Client
}

func openQueue(nc *nats.Conn, o *Options) *queue {
	c := client.New(nc, client.WithGrammar(o.Grammar))
	return &queue{target.New(c, o.FIFO, o.Queue), c}
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

	item, err := q.PeekItem(ctx, false)
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

	n, err := q.Len(ctx)
	if err == nil {
		err = fmt.Errorf("the queue has %d items of an earlier load: "+
			"it must be empty to be verified", n)
	}

	return err
}
