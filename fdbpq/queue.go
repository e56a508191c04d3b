package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Queue is a first-in first-out queue. Its methods work inside the caller's transaction, as
// those of PriorityQueue do.
type Queue struct{ handle }

// NewQueue returns the FIFO queue in s, as NewPriorityQueue returns a priority queue.
func NewQueue(s Subspace, format ValueFormat) *Queue {
	return &Queue{handle{codec.NewLayout(s, format, true)}}
}

// Enqueue adds a message at the end, as PriorityQueue.Push does. Concurrent ones end up in
// either order.
//
// Errors: as PriorityQueue.Push.
func (q *Queue) Enqueue(tx kv.Transaction, m Message) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Message: m}).id()
}

// EnqueueAfter is Enqueue of an item that nobody gets before the delay is over, as
// PriorityQueue.PushAfter.
func (q *Queue) EnqueueAfter(tx kv.Transaction, m Message, delay time.Duration) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Message: m, Delay: delay}).id()
}

// EnqueueAt is EnqueueAfter with a time, as PriorityQueue.PushAt.
func (q *Queue) EnqueueAt(tx kv.Transaction, m Message, at time.Time) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Message: m, At: at}).id()
}

// EnqueueOnce is Enqueue of a message that may have a MsgID, a Unique key or both, as
// PriorityQueue.PushOnce.
func (q *Queue) EnqueueOnce(tx kv.Transaction, m Message) (id ID, duplicate bool, err error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Message: m}).pushed()
}

// Dequeue removes and returns the oldest item.
//
// Errors: as PriorityQueue.PopMin.
func (q *Queue) Dequeue(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, Queue: q}).item()
}

// Lease returns the item that Dequeue would return, and leases it for the given time, MinLease to
// MaxLease; 0 means Settings.AckWait. Nobody else gets the item meanwhile. Ack removes it;
// otherwise it comes back to its old place when the lease is over, or with Nak.
//
// Errors: as PriorityQueue.LeaseMin.
func (q *Queue) Lease(tx kv.Transaction, wait time.Duration) (Item, Lease, error) {
	return applyOne(tx, Op{Kind: OpLease, Queue: q, Lease: wait}).lease()
}

// Peek returns the item that Dequeue would return, and leaves it in the queue.
func (q *Queue) Peek(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, Queue: q}).item()
}

// DeadLetters returns the dead-letter queue, unless Settings.DeadLetter names another: in a
// Keyspace the queue with "-dead" appended to the name, otherwise one inside this queue's own
// subspace.
func (q *Queue) DeadLetters() *Queue { return &Queue{handle{q.l.DeadLetters("")}} }

// Rank is PriorityQueue.Rank, from the front.
func (q *Queue) Rank(r kv.Reader, id ID) (n int64, atLeast bool, err error) {
	return readOne(r, Op{Kind: OpRank, Queue: q, ID: id}).rank()
}
