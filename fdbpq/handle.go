package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Ack removes a leased item. It also works after the lease is over, unless the item was delivered
// again.
//
// Errors: ErrLeaseLost, ErrCorrupt and errors of the store.
func (q *handle) Ack(tx kv.Transaction, token Token) error {
	return applyOne(tx, Op{Kind: OpAck, Queue: q, Token: token}).Err
}

// Nak gives a leased item back to its old place, after a delay of 0 to MaxDelay, or Backoff. The
// token is invalid from then on. After the last delivery that Settings.MaxDeliver allows, the item
// moves to the dead-letter queue instead.
//
// Errors: ErrOp for the delay, ErrNoRoom for an item that the transaction has no room for, and as
// Ack.
func (q *handle) Nak(tx kv.Transaction, token Token, delay time.Duration) error {
	return applyOne(tx, Op{Kind: OpNak, Queue: q, Token: token, Delay: delay}).Err
}

// Extend renews a lease, with the length that it had.
//
// Errors: ErrNoRoom for an item that the transaction has no room for, and as Ack.
func (q *handle) Extend(tx kv.Transaction, token Token) (Lease, error) {
	_, lease, err := applyOne(tx, Op{Kind: OpExtend, Queue: q, Token: token}).lease()
	return lease, err
}

// Len returns the number of items that are ready. It does not count items that other programs added
// with the bare recipe.
//
// Errors: ErrCorrupt and errors of the store.
func (q *handle) Len(r kv.Reader) (int64, error) {
	result := readOne(r, Op{Kind: OpLen, Queue: q})
	return result.Len, result.Err
}

// Configure changes the settings of the queue, and returns the new ones. They count for all
// transactions that commit later. change gets the present settings. It must not have other effects,
// because it may be called more than once.
//
// Errors: ErrSettings, ErrCorrupt and errors of the store.
func (q *handle) Configure(tx kv.Transaction, change func(*Settings)) (Settings, error) {
	result := applyOne(tx, Op{Kind: OpConfigure, Queue: q, Configure: change})
	if result.Err != nil {
		return Settings{}, result.Err
	}
	return *result.Settings, nil
}

// Clear removes everything in the queue, including its settings, consumers and schedules.
func (q *handle) Clear(tx kv.Transaction) {
	tx.ClearRange(codec.Within([]byte(q.l.Prefix)))
	q.l.ChangeSettingsVersion(tx)
}

// Push adds a message, after all items of the same priority, and returns the id of its item. If an
// earlier push has the same MsgID or Unique key, nothing is pushed, and the id names the first
// item.
//
// Pushes never conflict with each other, unless they have the same MsgID or Unique key, or the
// queue has Settings.MaxItems or Settings.MaxBytes. The transaction should end within a few
// minutes: see Retire. An OpPush of Apply can also hold an item back, and says whether it is a
// duplicate.
//
// Errors: ErrMessageTooLarge, ErrFull; ErrNoRoom while bytes have to be counted, or while more is
// due than one transaction handles and the item that has the Unique key may have expired; ErrOp for
// a MsgID or Unique that is too long, ErrCorrupt and errors of the store.
func (q *PriorityQueue) Push(tx kv.Transaction, priority int64, m Message) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Priority: priority, Message: m}).id()
}

// PopMin removes and returns the first item: the oldest of those with the smallest priority.
//
// Errors: ErrEmpty, with ErrPaused, ErrRate or ErrGroupLimits where settings keep items back;
// ErrNoRoom while more is due than one transaction handles; ErrCorrupt and errors of the store.
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
// MaxLease; 0 means Settings.AckWait. Until then it is not delivered again. Ack removes the item;
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

// PeekMin returns the item that PopMin would return, and leaves it in the queue. It also returns an
// item that settings keep back from pops.
//
// Errors: ErrEmpty, ErrCorrupt and errors of the store.
func (q *PriorityQueue) PeekMin(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, End: Front, Queue: q}).item()
}

// PeekMax returns the item that PopMax would return, as PeekMin does.
func (q *PriorityQueue) PeekMax(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, End: Back, Queue: q}).item()
}

// Enqueue adds a message at the end, as PriorityQueue.Push does. Concurrent transactions enqueue in
// either order.
//
// Errors: as PriorityQueue.Push.
func (q *Queue) Enqueue(tx kv.Transaction, m Message) (ID, error) {
	return applyOne(tx, Op{Kind: OpPush, Queue: q, Message: m}).id()
}

// Dequeue removes and returns the oldest item.
//
// Errors: as PriorityQueue.PopMin.
func (q *Queue) Dequeue(tx kv.Transaction) (Item, error) {
	return applyOne(tx, Op{Kind: OpPop, Queue: q}).item()
}

// Lease returns the item that Dequeue would return, and leases it for the given time, MinLease to
// MaxLease; 0 means Settings.AckWait. Until then it is not delivered again. Ack removes the item;
// otherwise it comes back to its old place when the lease is over, or with Nak.
//
// Errors: as PriorityQueue.LeaseMin.
func (q *Queue) Lease(tx kv.Transaction, wait time.Duration) (Item, Lease, error) {
	return applyOne(tx, Op{Kind: OpLease, Queue: q, Lease: wait}).lease()
}

// Peek returns the item that Dequeue would return, and leaves it in the queue, as
// PriorityQueue.PeekMin does.
func (q *Queue) Peek(r kv.Reader) (Item, error) {
	return readOne(r, Op{Kind: OpPeek, Queue: q}).item()
}

// applyOne runs a single operation in the caller's transaction. Result.Err is its error or one of
// the store.
func applyOne(tx kv.Transaction, op Op) Result { return only(Apply(tx, []Op{op}, time.Now())) }

// readOne is applyOne for operations that only read.
func readOne(r kv.Reader, op Op) Result { return only(Read(r, []Op{op})) }

func only(results []Result, err error) Result {
	if err != nil {
		return Result{Err: err}
	}
	return results[0]
}

func (r Result) id() (ID, error)             { return r.Item.ID, r.Err }
func (r Result) item() (Item, error)         { return r.Item, r.Err }
func (r Result) lease() (Item, Lease, error) { return r.Item, r.Lease, r.Err }
