package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// handle is what handles of both kinds of queues have in common.
type handle struct{ l *codec.Layout }

func (q *handle) Layout() *codec.Layout { return q.l }

// Ack removes a leased item. It also works when the lease is over, as long as nobody
// else got the item.
//
// Errors: ErrLeaseLost, ErrCorrupt and errors of the store.
func (q *handle) Ack(tx kv.Transaction, token Token) error {
	return applyOne(tx, Op{Kind: OpAck, Queue: q, Token: token}).Err
}

// Nak gives a leased item back to its old place, after a delay of 0 to MaxDelay, or Backoff. The
// token is invalid from then on. After the last delivery that Settings.MaxDeliver allows, the item
// moves to the dead-letter queue instead. Errors: ErrOp for the delay, and as Ack.
func (q *handle) Nak(tx kv.Transaction, token Token, delay time.Duration) error {
	return applyOne(tx, Op{Kind: OpNak, Queue: q, Token: token, Delay: delay}).Err
}

// Restore puts an item that a pop took back to its old place, with its history, as
// if it had not been popped. It is for items that nobody received.
//
// Errors: ErrExists if the item is in the queue, and errors of the store.
func (q *handle) Restore(tx kv.Transaction, item *Item) error {
	return applyOne(tx, Op{Kind: OpRestore, Queue: q, Item: item}).Err
}

// Term gives up a leased item: it moves to the dead-letter queue, with the reason, or
// ReasonTerminated if that is "". Errors: as Ack, and ErrNoRoom for a large item that the
// transaction has no room for.
func (q *handle) Term(tx kv.Transaction, token Token, reason string) error {
	return applyOne(tx, Op{Kind: OpTerm, Queue: q, Token: token, Reason: reason}).Err
}

// Extend renews a lease, with the length that it had. Errors: as Ack.
func (q *handle) Extend(tx kv.Transaction, token Token) (Lease, error) {
	_, lease, err := applyOne(tx, Op{Kind: OpExtend, Queue: q, Token: token}).lease()
	return lease, err
}

// Len returns the number of items that are ready. It does not count those that other programs added
// with the bare recipe.
func (q *handle) Len(r kv.Reader) (int64, error) {
	result := readOne(r, Op{Kind: OpLen, Queue: q})
	return result.Len, result.Err
}

// Info returns the number of items in each state, and more. Errors: ErrCorrupt and errors of
// the store.
func (q *handle) Info(r kv.Reader) (Info, error) {
	result := readOne(r, Op{Kind: OpInfo, Queue: q})
	return orZero(result.Info, result.Err)
}

// Settings returns the settings of the queue.
//
// Errors: ErrCorrupt and errors of the store.
func (q *handle) Settings(r kv.Reader) (Settings, error) {
	result := readOne(r, Op{Kind: OpSettings, Queue: q})
	return orZero(result.Settings, result.Err)
}

// Configure changes the settings of the queue, and returns what they are then. They count for all
// transactions that commit later. change gets the present settings; it must not do anything else,
// and may be called again if the transaction is.
//
// Errors: ErrSettings, ErrCorrupt and errors of the store.
func (q *handle) Configure(tx kv.Transaction, change func(*Settings)) (Settings, error) {
	result := applyOne(tx, Op{Kind: OpConfigure, Queue: q, Configure: change})
	return orZero(result.Settings, result.Err)
}

// Clear removes everything in the queue, also its settings and consumers.
func (q *handle) Clear(tx kv.Transaction) { codec.Clear(q.l, tx) }

// Get returns an item by its id, whichever state it is in, and leaves it there.
//
// Errors: ErrNotFound, ErrCorrupt and errors of the store.
func (q *handle) Get(r kv.Reader, id ID) (Item, ItemState, error) {
	return readOne(r, Op{Kind: OpGet, Queue: q, ID: id}).itemState()
}

// Remove removes an item by its id, whichever state it is in. If it is leased, its lease is lost.
//
// Errors: as Get.
func (q *handle) Remove(tx kv.Transaction, id ID) error {
	return applyOne(tx, Op{Kind: OpRemove, Queue: q, ID: id}).Err
}

// Release ends the lease of an item by its id, whoever holds it, as if the item had not been
// delivered: it is ready again at its old place, and the token is invalid. It is for leases whose
// holder is known to be gone.
//
// Errors: ErrNotLeased, and as Get; ErrNotFound also for an item that has expired meanwhile, which is
// removed.
func (q *handle) Release(tx kv.Transaction, id ID) error {
	return applyOne(tx, Op{Kind: OpRelease, Queue: q, ID: id}).Err
}

// Purge removes all items at once, however many there are, and returns how many those were: see
// Result.Len. Leases of removed items are lost. To remove only those in one state, Browse, and apply
// an OpRemove with that State to each.
//
// Errors: ErrManyRates, and errors of the store.
func (q *handle) Purge(tx kv.Transaction) (int64, error) {
	result := applyOne(tx, Op{Kind: OpPurge, Queue: q})
	return result.Len, result.Err
}

// RedriveItem pushes an item of a dead-letter queue, ready or delayed, again to the queue that
// DeadLetter.Queue names, and returns the id that it has there. It keeps its priority, its value and
// its headers. Its deliveries begin anew, and it has no DeadLetter.
//
// Errors: ErrLeased, ErrNotDeadLetter, ErrNoRoom for a large item that the transaction has no room
// for, and as Get.
func (q *handle) RedriveItem(tx kv.Transaction, id ID) (ID, error) {
	return applyOne(tx, Op{Kind: OpRedriveItem, Queue: q, ID: id}).id()
}
