package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

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

// Peek returns the item that Dequeue would return, and leaves it in the queue.
func (q *Queue) Peek(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, Queue: q}).item()
}

// Len returns the number of items. It does not count those that other programs added with
// the bare recipe.
func (q *Queue) Len(r kv.Reader) (int64, error) {
	return readOne(r, Op{Kind: OpLen, Queue: q}).length()
}

// Clear removes everything in the queue.
func (q *Queue) Clear(tx kv.Transaction) { q.l.clear(tx) }
