package client

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// StoredItem is an item that stays in its queue, as Items and GetItems return it:
//
//	ID         string
//	Priority   int64               // 0 in a FIFO queue
//	State      State               // Ready, Delayed or Leased
//	PushedAt   *time.Time          // nil for items that other programs wrote
//	Due        *time.Time          // when the lease or the delay is over, nil if it is ready
//	LeasedAt   *time.Time          // when the lease began; without Holder, when it was last renewed
//	Holder     string              // the name that the lease was taken with, "" without one
//	Expires    *time.Time          // nil if it does not
//	Deliveries int64               // it has had
//	Reason     string              // of the last failure or, without, why it is a dead letter
//	Size       int                 // bytes of the value
//	Headers    map[string][]string
//	HeadersCut bool                // there was no room for the headers
//	Value      []byte              // its beginning
//	ValueCut   bool                // it is longer
//	Code       subjects.Code       // why there is no item, for one of several ids; else 0
//	Text       string              // of that error
type StoredItem = subjects.StoredItem

// ItemsOptions says which items of a queue Items returns. The zero value is the first 100, with the
// first 1,024 bytes of their values:
//
//	State      State             // "" for all states
//	Max        bool              // begin at the end of PopMax
//	After      string            // id that they come after, there or not; "" for the first
//	Limit      int               // up to 1,000; 0 means 100
//	ValueBytes int               // of each value, up to 65,536; 0 means 1,024, NoValues none
//	Match      string            // text in the value, a header or the id; "" for any
//	Headers    map[string]string // what headers of the item must say
type ItemsOptions = subjects.ItemsOptions

// ItemsPage is a part of the items of a queue:
//
//	Items   []StoredItem // in the order in which they would be served
//	Next    *string      // ItemsOptions.After of the next page, nil after the last
//	Scanned int64        // how many items were looked at
type ItemsPage = subjects.ItemsPage

// NoValues as ItemsOptions.ValueBytes asks for items without their values.
const NoValues = subjects.NoValues

// ItemResult is the result for one of several items:
//
//	ID    string        // of the item
//	NewID string        // that a moved or redriven item has now
//	Home  string        // queue that a dead letter was sent back to
//	Code  subjects.Code // 0 if that succeeded
//	Text  string        // of the error
type ItemResult struct {
	subjects.ItemResult
	verb subjects.Verb
}

// Err returns nil if that succeeded, or the error of a request for this item alone, such as
// [ErrNotFound].
func (r ItemResult) Err() error {
	if r.Code == 0 {
		return nil
	}
	return &Error{Code: r.Code, Text: r.Text, verb: r.verb}
}

// Items returns items of the queue, in whichever state they are, in the order in which they would be
// served if all were ready, and leaves them there. A page looks at no more than 10,000 items or 8 MB,
// so one that searches may be short, or empty, and still have a Next.
//
// Errors: [ErrBadRequest], [ErrOverloaded], and those that every call can return.
func (q *handle) Items(ctx context.Context, o ItemsOptions) (ItemsPage, error) {
	return query(ctx, q, subjects.Items, o.Encode(), subjects.ParseReply[subjects.ItemsPage])
}

// GetItems returns items by their ids, 1 to 1,000 of them, with up to valueBytes bytes of each value,
// at most 65,536; 0 means 1,024, and [NoValues] none. Those that are not in the queue, or had no room
// in the reply, have a Code: see [StoredItem].
//
// Errors: [ErrBadRequest] for what is no id, and those that every call can return.
func (q *handle) GetItems(ctx context.Context, ids []string, valueBytes int) ([]StoredItem, error) {
	payload := subjects.ItemOptions{IDs: ids, ValueBytes: valueBytes}.Encode(subjects.Get)
	page, err := query(ctx, q, subjects.Get, payload, subjects.ParseReply[subjects.ItemsPage])
	return page.Items, err
}

// RemoveItems is Remove for 1 to 1,000 ids, in one transaction. An item that cannot be removed has an
// Err in its result, and does not keep the others from being removed.
//
// Errors: [ErrBadRequest] for what is no id: nothing was changed. And those that every call can return.
func (q *handle) RemoveItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Remove, subjects.ItemOptions{IDs: ids})
}

// MoveItems is Move for several ids, as RemoveItems is Remove. The items keep the order of the ids.
func (q *PriorityQueue) MoveItems(ctx context.Context, ids []string, priority int64) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Move, subjects.ItemOptions{IDs: ids, Priority: priority})
}

// RedriveItems is Redrive for dead letters of this queue, as RemoveItems is Remove. The results have
// the queues that they were sent back to, and the ids that they have there.
func (q *handle) RedriveItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Redrive, subjects.ItemOptions{IDs: ids})
}

// ReleaseItems is Release for several ids, as RemoveItems is Remove.
func (q *handle) ReleaseItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Release, subjects.ItemOptions{IDs: ids})
}

func (q *handle) editItems(ctx context.Context, verb subjects.Verb, o subjects.ItemOptions) ([]ItemResult, error) {
	if len(o.IDs) == 0 { // which could mean others, to a redrive
		return nil, badRequest("no ids: want 1 to %d", subjects.MaxItems)
	}
	reply, err := query(ctx, q, verb, o.Encode(verb), subjects.ParseReply[subjects.ItemResults])
	if err != nil {
		return nil, err
	}

	results := make([]ItemResult, len(reply.Results))
	for i, result := range reply.Results {
		results[i] = ItemResult{result, verb}
	}
	return results, nil
}

// Release ends the lease of an item at once, without counting the delivery, and the item is back at
// its old place. It is for leases whose holder is known to be dead. A holder that is not gets
// [ErrLeaseLost].
//
// Errors: [ErrNotFound]; [ErrLeaseLost] if the item is not leased; and as Remove.
func (q *handle) Release(ctx context.Context, id string) error {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Release)
	_, err := query(ctx, q, subjects.Release, payload, subjects.ParseReply[subjects.Removed])
	return err
}
