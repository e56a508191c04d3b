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

// Ack removes a leased item. It also works when the lease is over, as long as nobody
// else got the item.
//
// Errors: ErrLeaseLost, ErrCorrupt and errors of the store.
func (q *Queue) Ack(tx kv.Transaction, token Token) error {
	return applyOne(tx, Op{Kind: OpAck, Queue: q, Token: token}).err
}

// Nak gives a leased item back to its old place, after a delay of 0 to MaxDelay, or Backoff. The
// token is invalid from then on. After the last delivery that Settings.MaxDeliver allows, the item moves to the
// dead-letter queue instead. Errors: ErrOp for the delay, and as Ack.
func (q *Queue) Nak(tx kv.Transaction, token Token, delay time.Duration) error {
	return applyOne(tx, Op{Kind: OpNak, Queue: q, Token: token, Delay: delay}).err
}

// Restore puts an item that Dequeue took back to its old place, as PriorityQueue.Restore does.
func (q *Queue) Restore(tx kv.Transaction, item *Item) error {
	return applyOne(tx, Op{Kind: OpRestore, Queue: q, Item: item}).err
}

// Term gives up a leased item: it moves to the dead-letter queue, with the reason, or
// ReasonTerminated if that is "". Errors: as Ack, and ErrNoRoom for a large item that the transaction has
// no room for.
func (q *Queue) Term(tx kv.Transaction, token Token, reason string) error {
	return applyOne(tx, Op{Kind: OpTerm, Queue: q, Token: token, Reason: reason}).err
}

// Extend renews a lease, with the length that it had. Errors: as Ack.
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

// Info returns the number of items in each state, and more. Errors: ErrCorrupt and errors of
// the store.
func (q *Queue) Info(r kv.Reader) (Info, error) {
	return readOne(r, Op{Kind: OpInfo, Queue: q}).info()
}

// Settings returns the settings of the queue.
//
// Errors: ErrCorrupt and errors of the store.
func (q *Queue) Settings(r kv.Reader) (Settings, error) {
	return readOne(r, Op{Kind: OpSettings, Queue: q}).settings()
}

// Configure changes the settings of the queue, and returns what they are then. They count for
// all transactions that commit later. change gets the present settings; it must not do anything else,
// and may be called again if the transaction is.
//
// Errors: ErrSettings, ErrCorrupt and errors of the store.
func (q *Queue) Configure(tx kv.Transaction, change func(*Settings)) (Settings, error) {
	return applyOne(tx, Op{Kind: OpConfigure, Queue: q, Configure: change}).settings()
}

// DeadLetters returns the dead-letter queue, unless Settings.DeadLetter names another: in a Keyspace
// the queue with "-dead" appended to the name, otherwise one inside this queue's own subspace.
func (q *Queue) DeadLetters() *Queue { return &Queue{q.l.deadLetters("")} }

// Clear removes everything in the queue, also its settings.
func (q *Queue) Clear(tx kv.Transaction) { q.l.clear(tx) }
