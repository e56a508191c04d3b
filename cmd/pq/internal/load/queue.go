package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

// maxQueues bounds the memory for the shares.
const maxQueues = 1_000_000

// share is what one queue has of a load.
type share struct {
	name           string
	pushed, popped atomic.Int64 // items that were stored, and that were leased and removed
	doubtful       atomic.Int64 // items of pushes and acknowledgements of unknown outcome
	dry            atomic.Bool  // the queue was empty, and nobody pushes
}

func (o *Options) shares() []*share {
	if o.Queues == 1 {
		return []*share{{name: o.Queue}}
	}

	list := make([]*share, o.Queues)
	for i := range list {
		list[i] = &share{name: fmt.Sprintf("%s-%d", o.Queue, i+1)}
	}
	return list
}

// where names the queues.
func where(queue string, n int) string {
	if n == 1 {
		return "queue " + queue
	}
	return fmt.Sprintf("%d queues %s-N", n, queue)
}

// surplus is how many items Mixed may have left in the queue.
func (s *share) surplus() int64 { return max(s.pushed.Load()-s.popped.Load(), 0) }

// queue is one of the queues, over one connection, for one turn.
type queue struct {
	*client.Queue
	*share
	client *client.Client
	number int64 // of turns that the queue had before
}

// turn returns the next turn of a queue that may have items.
func (r *run) turn() (turn int64) {
	for range r.shares {
		turn = r.turns.Add(1) - 1
		if !r.shares[turn%int64(len(r.shares))].dry.Load() {
			break
		}
	}
	return turn
}

// open returns the queue whose turn it is. All queues have had one before any has the next.
func (r *run) open(c *client.Client, turn int64) queue {
	n := int64(len(r.shares))
	s := r.shares[turn%n]
	return queue{target.Queue(c, r.FIFO, s.name), s, c, turn / n}
}

// dry reports whether all queues were empty.
func (r *run) dry() bool { return r.dried.Load() == int64(len(r.shares)) }

// errDry means that the queue was empty.
var errDry = errors.New("the queue is empty")

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

// check refuses a load whose first queue has items that are not the load's to take. Of many queues,
// the others show theirs on the way.
func (r *run) check(ctx context.Context, c *client.Client) error {
	if r.Mode == Push {
		return nil
	}

	q := r.open(c, 0)
	item, err := q.Peek(ctx)
	if errors.Is(err, client.ErrEmpty) {
		return nil
	}
	if err == nil && !isOurs(item) {
		err = errForeign
	}
	if err != nil {
		return fmt.Errorf("queue %s: %w", q.name, err)
	}
	return nil
}
