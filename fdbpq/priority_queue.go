package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// PriorityQueue is a queue ordered by priority, then by order of pushing. Its methods work
// inside the caller's transaction: nothing has happened until that commits, and if it does
// not, discard what they returned. A PriorityQueue is cheap to make and safe for concurrent
// use.
type PriorityQueue struct{ handle }

// NewPriorityQueue returns the priority queue in s, which must hold nothing else. The
// recipe's items are in its subspace ("i"). NewPriorityQueue reads and writes nothing: a
// queue exists from its first push on.
func NewPriorityQueue(s Subspace, format ValueFormat) *PriorityQueue {
	return &PriorityQueue{handle{codec.NewLayout(s, format, false)}}
}

// Push adds a message, after all items of the same priority. Pushes never conflict with each other,
// unless the queue has Settings.MaxItems or Settings.MaxBytes, or they have the same MsgID or
// Unique key. PushOnce also says whether the message is a duplicate, which is not pushed. The
// transaction should end within a few minutes: see Retire.
//
// Errors: ErrMessageTooLarge, ErrFull, ErrNoRoom while bytes have to be counted, ErrOp for a MsgID
// or Unique that is too long, ErrCorrupt and errors of the store.
func (q *PriorityQueue) Push(tx kv.Transaction, priority int64, m Message) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Priority: priority, Message: m}).id()
}

// PushAfter is Push of an item that nobody gets before the delay is over, 0 to MaxDelay. It then
// comes in before items that were pushed meanwhile.
//
// Errors: ErrOp for the delay, and as Push.
func (q *PriorityQueue) PushAfter(tx kv.Transaction, priority int64, m Message, delay time.Duration) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Priority: priority, Message: m, Delay: delay}).id()
}

// PushAt is PushAfter with a time before 2200, by the clock of the process that serves the item. A
// time in the past is no delay.
func (q *PriorityQueue) PushAt(tx kv.Transaction, priority int64, m Message, at time.Time) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Priority: priority, Message: m, At: at}).id()
}

// PushOnce is Push of a message that may have a MsgID, a Unique key or both. If it is a duplicate,
// it is not pushed, and the id is that of the first push.
//
// Errors: as Push.
func (q *PriorityQueue) PushOnce(tx kv.Transaction, priority int64, m Message) (id ID, duplicate bool, err error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Priority: priority, Message: m}).pushed()
}

// PopMin removes and returns the first item: the oldest of those with the smallest
// priority.
//
// Errors: ErrEmpty, with ErrPaused if the queue is paused, ErrCorrupt and errors of the store.
func (q *PriorityQueue) PopMin(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, End: Front, Queue: q}).item()
}

// PopMax removes and returns the last item: the NEWEST of those with the largest priority,
// because it reads the same order from the other end. To serve large numbers first and the
// oldest among equals, push with the negated priority and use PopMin.
//
// Errors: as PopMin.
func (q *PriorityQueue) PopMax(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, End: Back, Queue: q}).item()
}

// LeaseMin returns the item that PopMin would return, and leases it for the given time, MinLease to
// MaxLease; 0 means Settings.AckWait. Nobody else gets the item meanwhile. Ack removes it;
// otherwise it comes back to its old place when the lease is over, or with Nak.
//
// Errors: ErrOp for the duration, ErrMaxLeased, ErrNoRoom for an item that the transaction has no
// room for, and as PopMin.
func (q *PriorityQueue) LeaseMin(tx kv.Transaction, wait time.Duration) (Item, Lease, error) {
	return applyOne(tx, Op{Kind: OpLease, End: Front, Queue: q, Lease: wait}).lease()
}

// LeaseMax leases the item that PopMax would return, as LeaseMin does.
func (q *PriorityQueue) LeaseMax(tx kv.Transaction, wait time.Duration) (Item, Lease, error) {
	return applyOne(tx, Op{Kind: OpLease, End: Back, Queue: q, Lease: wait}).lease()
}

// PeekMin returns the item that PopMin would return, and leaves it in the queue.
func (q *PriorityQueue) PeekMin(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, End: Front, Queue: q}).item()
}

// PeekMax returns the item that PopMax would return, and leaves it in the queue.
func (q *PriorityQueue) PeekMax(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, End: Back, Queue: q}).item()
}

// DeadLetters returns the dead-letter queue, unless Settings.DeadLetter names another: in a
// Keyspace the queue with "-dead" appended to the name, otherwise one inside this queue's own
// subspace.
func (q *PriorityQueue) DeadLetters() *PriorityQueue {
	return &PriorityQueue{handle{q.l.DeadLetters("")}}
}

// Rank returns how many items would be served before an item from the given end; of a held item, if
// it came back now. If atLeast is true there may be more, see MaxRank. Items of other priorities
// that other programs added with the bare recipe do not count.
//
// Errors: as Get.
func (q *PriorityQueue) Rank(r kv.Reader, id ID, end End) (n int64, atLeast bool, err error) {
	return readOne(r, Op{Kind: OpRank, Queue: q, ID: id, End: end}).rank()
}

// Move moves an item to the end of a priority, and returns the id that it has there. It keeps its
// push time, its deliveries and, if it is delayed, its delay. The old id, and tokens of earlier
// leases, are worth nothing then.
//
// Errors: ErrLeased for an item that is leased, ErrNoRoom for a large item that the transaction has
// no room for, and as Get.
func (q *PriorityQueue) Move(tx kv.Transaction, id ID, priority int64) (ID, error) {
	return applyOne(tx, Op{Kind: OpMove, Queue: q, ID: id, Priority: priority}).id()
}
