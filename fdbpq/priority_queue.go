package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// PriorityQueue is a queue ordered by priority, then by order of pushing. Its
// methods work inside the caller's transaction: nothing has happened until
// that commits, and what they return is void if it does not. Handles are cheap
// and safe for concurrent use.
type PriorityQueue struct{ l *layout }

// NewPriorityQueue returns the priority queue kept in the given subspace, with
// the recipe's items at subspace ("i"). Nothing is read or written here.
func NewPriorityQueue(s Subspace, format ValueFormat) *PriorityQueue {
	return &PriorityQueue{newLayout(s, format, false)}
}

func (q *PriorityQueue) layout() *layout { return q.l }

// Push adds a message. Among items of equal priority it comes after those that
// are there. Pushes never conflict with each other. The transaction should be
// over within some minutes: see Retire.
//
// Errors: ErrMessageTooLarge and errors of the store.
func (q *PriorityQueue) Push(tx kv.Transaction, priority int64, m Message) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Priority: priority, Message: m}).id()
}

// PopMin removes and returns the first item: the smallest priority, and the
// oldest of those that share it.
//
// Errors: ErrEmpty, ErrCorrupt and errors of the store.
func (q *PriorityQueue) PopMin(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, End: Front, Queue: q}).item()
}

// PopMax removes and returns the last item: the largest priority, and the
// NEWEST of those that share it, because the recipe reads the same order from
// its other end. To serve a larger number first and keep the order of arrival
// among equals, push with the negated priority and use PopMin.
//
// Errors: as PopMin.
func (q *PriorityQueue) PopMax(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, End: Back, Queue: q}).item()
}

// PeekMin returns the item that PopMin would, and leaves it.
func (q *PriorityQueue) PeekMin(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, End: Front, Queue: q}).item()
}

// PeekMax returns the item that PopMax would, and leaves it.
func (q *PriorityQueue) PeekMax(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, End: Back, Queue: q}).item()
}

// Len returns the number of items pushed through this package and still
// there. Items that other programs added with the recipe are not counted.
func (q *PriorityQueue) Len(r kv.Reader) (int64, error) {
	return readOne(r, Op{Kind: OpLen, Queue: q}).length()
}

// Clear removes everything in the queue.
func (q *PriorityQueue) Clear(tx kv.Transaction) { q.l.clear(tx) }
