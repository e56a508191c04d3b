package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/kv"

// Get returns an item by its id, whichever state it is in, and leaves it there.
//
// Errors: ErrNotFound, ErrCorrupt and errors of the store.
func (q *PriorityQueue) Get(r kv.Reader, id ID) (Item, ItemState, error) {
	return readOne(r, Op{Kind: OpGet, Queue: q, ID: id}).itemState()
}

// Rank returns how many items would be served before an item from the given end; of a held item, if it
// came back now. If atLeast is true there may be more, see MaxRank. Items of other priorities that
// other programs added with the bare recipe do not count.
//
// Errors: as Get.
func (q *PriorityQueue) Rank(r kv.Reader, id ID, end End) (n int64, atLeast bool, err error) {
	return readOne(r, Op{Kind: OpRank, Queue: q, ID: id, End: end}).rank()
}

// Remove removes an item by its id, whichever state it is in. If it is leased, its lease is lost.
//
// Errors: as Get.
func (q *PriorityQueue) Remove(tx kv.Transaction, id ID) error {
	return applyOne(tx, Op{Kind: OpRemove, Queue: q, ID: id}).err
}

// Move moves an item to the end of a priority, and returns the id that it has there. It keeps its
// push time, its deliveries and, if it is delayed, its delay. The old id, and tokens of earlier leases,
// are worth nothing then.
//
// Errors: ErrLeased for an item that is leased, ErrNoRoom for a large item that the transaction has no
// room for, and as Get.
func (q *PriorityQueue) Move(tx kv.Transaction, id ID, priority int64) (ID, error) {
	return applyOne(tx, Op{Kind: OpMove, Queue: q, ID: id, Priority: priority}).id()
}

// Purge removes items in a state, or in AnyState, as many as fit into a transaction; begin with the zero
// Progress. If Progress.Next is not "" there may be more: go on with what was returned, in another
// transaction. An item that changes its state meanwhile may stay. Leases of removed items are lost.
//
// Errors: ErrCorrupt and errors of the store.
func (q *PriorityQueue) Purge(tx kv.Transaction, s ItemState, from Progress) (Progress, error) {
	return applyOne(tx, Op{Kind: OpPurge, Queue: q, State: s, Progress: from}).progress()
}

// Redrive pushes ready items of a dead-letter queue again to the queues that DeadLetter.Queue names, at most
// limit of them, or all if it is 0. They keep their priority and order, their value and headers. Their
// deliveries begin anew, they have new ids, and no DeadLetter. It goes on as Purge.
//
// Errors: as Purge.
func (q *PriorityQueue) Redrive(tx kv.Transaction, limit int64, from Progress) (Progress, error) {
	return applyOne(tx, Op{Kind: OpRedrive, Queue: q, Limit: limit, Progress: from}).progress()
}

// Get is PriorityQueue.Get.
func (q *Queue) Get(r kv.Reader, id ID) (Item, ItemState, error) {
	return readOne(r, Op{Kind: OpGet, Queue: q, ID: id}).itemState()
}

// Rank is PriorityQueue.Rank, from the front.
func (q *Queue) Rank(r kv.Reader, id ID) (n int64, atLeast bool, err error) {
	return readOne(r, Op{Kind: OpRank, Queue: q, ID: id}).rank()
}

// Remove is PriorityQueue.Remove.
func (q *Queue) Remove(tx kv.Transaction, id ID) error {
	return applyOne(tx, Op{Kind: OpRemove, Queue: q, ID: id}).err
}

// Purge is PriorityQueue.Purge.
func (q *Queue) Purge(tx kv.Transaction, s ItemState, from Progress) (Progress, error) {
	return applyOne(tx, Op{Kind: OpPurge, Queue: q, State: s, Progress: from}).progress()
}

// Redrive is PriorityQueue.Redrive.
func (q *Queue) Redrive(tx kv.Transaction, limit int64, from Progress) (Progress, error) {
	return applyOne(tx, Op{Kind: OpRedrive, Queue: q, Limit: limit, Progress: from}).progress()
}

func (o single) itemState() (Item, ItemState, error) { return o.result.Item, o.result.State, o.err }
func (o single) rank() (int64, bool, error)          { return o.result.Rank, o.result.RankAtLeast, o.err }
func (o single) progress() (Progress, error)         { return o.result.Progress, o.err }
