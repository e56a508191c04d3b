package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Queue is a first-in first-out queue. Its methods work inside the caller's transaction, as
// those of PriorityQueue do.
type Queue struct{ l *layout }

// NewQueue returns the FIFO queue in s, as NewPriorityQueue returns a priority queue.
func NewQueue(s Subspace, format ValueFormat) *Queue {
	return &Queue{newLayout(s, format, true)}
}

func (q *Queue) layout() *layout { return q.l }

// Enqueue adds a message at the end. Enqueues never conflict with each other; concurrent
// ones end up in either order.
//
// Errors: ErrMessageTooLarge and errors of the store.
func (q *Queue) Enqueue(tx kv.Transaction, m Message) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Message: m}).id()
}

// Dequeue removes and returns the oldest item.
//
// Errors: ErrEmpty, ErrCorrupt and errors of the store.
func (q *Queue) Dequeue(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, Queue: q}).item()
}

// Lease returns the item that Dequeue would return, and leases it for the given time, MinLease to
// MaxLease; 0 means DefaultLease. Nobody else gets the item meanwhile. Ack removes it;
// otherwise it comes back to its old place when the lease is over, or with Nak.
//
// Errors: ErrOp for the duration, and as Dequeue.
func (q *Queue) Lease(tx kv.Transaction, wait time.Duration) (Item, Lease, error) {
	return applyOne(tx, Op{Kind: OpLease, Queue: q, Lease: wait}).lease()
}

// Ack removes a leased item. It also works when the lease is over, as long as nobody
// else got the item.
//
// Errors: ErrLeaseLost, ErrCorrupt and errors of the store.
func (q *Queue) Ack(tx kv.Transaction, token Token) error {
	return applyOne(tx, Op{Kind: OpAck, Queue: q, Token: token}).err
}

// Nak gives a leased item back to its old place, after a delay of 0 to MaxDelay. The token is
// worth nothing then. Errors: ErrOp for the delay, and as Ack.
func (q *Queue) Nak(tx kv.Transaction, token Token, delay time.Duration) error {
	return applyOne(tx, Op{Kind: OpNak, Queue: q, Token: token, Delay: delay}).err
}

// Extend has a lease begin anew, with the length that it had. Errors: as Ack.
func (q *Queue) Extend(tx kv.Transaction, token Token) (Lease, error) {
	_, lease, err := applyOne(tx, Op{Kind: OpExtend, Queue: q, Token: token}).lease()
	return lease, err
}

// Peek returns the item that Dequeue would return, and leaves it in the queue.
func (q *Queue) Peek(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, Queue: q}).item()
}

// Len returns the number of items that are ready. It does not count those that other programs added with
// the bare recipe.
func (q *Queue) Len(r kv.Reader) (int64, error) {
	return readOne(r, Op{Kind: OpLen, Queue: q}).length()
}

// Clear removes everything in the queue.
func (q *Queue) Clear(tx kv.Transaction) { q.l.clear(tx) }
