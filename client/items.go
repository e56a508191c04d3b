package client

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// PeekMin returns the item that PopMin would remove, and leaves it in the queue.
//
// Errors: [ErrEmpty], and those that every call can return.
func (q *PriorityQueue) PeekMin(ctx context.Context) (*Item, error) {
	return q.peek(ctx, subjects.PeekMin)
}

// PeekMax returns the item that PopMax would remove, and leaves it in the queue. See
// [PriorityQueue.PeekMin].
func (q *PriorityQueue) PeekMax(ctx context.Context) (*Item, error) {
	return q.peek(ctx, subjects.PeekMax)
}

// Peek returns the item that Dequeue would remove, and leaves it in the queue. See
// [PriorityQueue.PeekMin].
func (q *Queue) Peek(ctx context.Context) (*Item, error) { return q.peek(ctx, subjects.Peek) }

func (q *handle) peek(ctx context.Context, verb subjects.Verb) (*Item, error) {
	reply, err := q.request(ctx, verb, nil, nil)
	if err != nil {
		return nil, err
	}
	return receivedIn(reply).item(), nil
}

// State is a state of items: [Ready], [Delayed] or [Leased].
type State = subjects.State

// The states of items.
const (
	Ready   = subjects.StateReady
	Delayed = subjects.StateDelayed
	Leased  = subjects.StateLeased
)

// Get returns an item in any state by its id, and leaves it in the queue. The state is "" if the
// item left no room for it in the reply.
//
// Errors: [ErrNotFound], [ErrBadRequest] for a malformed id, and those that every call can return.
func (q *handle) Get(ctx context.Context, id string) (*Item, State, error) {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Get)
	reply, err := q.request(ctx, subjects.Get, nil, payload)
	if err != nil {
		return nil, "", err
	}
	state := State(reply.Header.Get(subjects.HeaderState))
	return receivedIn(reply).item(), state, nil
}

// Remove removes an item in any state by its id. If a worker has leased it, its acknowledgements
// return [ErrLeaseLost].
//
// Errors: those of Get.
func (q *handle) Remove(ctx context.Context, id string) error {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Remove)
	_, err := query(ctx, q, subjects.Remove, payload, subjects.ParseReply[subjects.Removed])
	return err
}

// Move moves an item to the end of a priority, and returns its new id.
//
// Errors: [ErrLeased] for a leased item, and those of Get.
func (q *PriorityQueue) Move(ctx context.Context, id string, priority int64) (string, error) {
	payload := subjects.ItemOptions{ID: id, Priority: priority}.Encode(subjects.Move)
	moved, err := query(ctx, &q.handle, subjects.Move, payload, subjects.ParseReply[subjects.Moved])
	return moved.ID, err
}

// Rank returns how many items PopMin or Dequeue would return before this one. A leased or delayed
// item counts as if it came back now. If atLeast is true, there may be more: a rank is exact up to
// 10,000 items of the same priority.
//
// Errors: those of Get.
func (q *handle) Rank(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.rank(ctx, subjects.ItemOptions{ID: id})
}

// RankMax is Rank for the order in which PopMax returns items.
func (q *PriorityQueue) RankMax(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.rank(ctx, subjects.ItemOptions{ID: id, Max: true})
}

func (q *handle) rank(ctx context.Context, o subjects.ItemOptions) (int64, bool, error) {
	payload := o.Encode(subjects.Rank)
	ranked, err := query(ctx, q, subjects.Rank, payload, subjects.ParseReply[subjects.Ranked])
	return ranked.Rank, ranked.AtLeast, err
}

// StoredItem is an item in a queue, as Items and GetItems return it:
//
//	ID         string
//	Priority   int64               // 0 in a FIFO queue
//	State      State               // Ready, Delayed or Leased
//	PushedAt   *time.Time          // nil for an item that another program wrote to the store
//	Due        *time.Time          // when the lease or the delay ends, nil if it is ready
//	LeasedAt   *time.Time          // when the lease began or, without a Holder, was renewed
//	Holder     string              // the name that the lease was taken with; "" is none
//	Expires    *time.Time          // nil if it does not expire
//	Deliveries int64               // how often it was delivered
//	Reason     string              // of the last failure, or else why it is a dead letter
//	Size       int                 // of the value, in bytes
//	Headers    map[string][]string
//	HeadersCut bool                // the reply had no room for the headers
//	Value      []byte              // the start of the value
//	ValueCut   bool                // the value is longer
//	Code       subjects.Code       // why there is no item with this id; 0 if there is one
//	Text       string              // of that error
type StoredItem = subjects.StoredItem

// ItemsOptions says which items of a queue Items returns. The zero value is the first 100, with the
// first 1,024 bytes of their values:
//
//	State      State             // "" for all states
//	Max        bool              // begin at the end of PopMax
//	After      string            // id after which to begin, in the queue or not; "" for the first
//	Limit      int               // up to 1,000; 0 means 100
//	ValueBytes int               // of each value, up to 65,536; 0 means 1,024, NoValues none
//	Match      string            // text that the value, a header or the id has; "" for any
//	Headers    map[string]string // values that headers of the item must have
type ItemsOptions = subjects.ItemsOptions

// ItemsPage is one page of the items of a queue:
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
//	NewID string        // of a moved or redriven item, now
//	Home  string        // the queue that a dead letter went back to
//	Code  subjects.Code // 0 on success
//	Text  string        // of the error
type ItemResult struct {
	subjects.ItemResult
	verb subjects.Verb
}

// Err returns nil on success, or else the error that a request for this item alone would return,
// such as [ErrNotFound].
func (r ItemResult) Err() error {
	if r.Code == 0 {
		return nil
	}
	return &Error{Code: r.Code, Text: r.Text, verb: r.verb}
}

// Items returns items of the queue, and leaves them there. They are in the order in which they
// would be served if all were ready. A page looks at no more than 10,000 items or 8 MB, so the page
// of a search may be short or empty and still have a Next.
//
// Errors: [ErrBadRequest], [ErrOverloaded], and those that every call can return.
func (q *handle) Items(ctx context.Context, o ItemsOptions) (ItemsPage, error) {
	return query(ctx, q, subjects.Items, o.Encode(), subjects.ParseReply[subjects.ItemsPage])
}

// GetItems returns 1 to 1,000 items by their ids, each with up to valueBytes bytes of its value, at
// most 65,536; 0 means 1,024, and [NoValues] means none. Items that are not in the queue, or had no
// room in the reply, have a Code: see [StoredItem].
//
// Errors: [ErrBadRequest] for a malformed id, and those that every call can return.
func (q *handle) GetItems(ctx context.Context, ids []string, valueBytes int) ([]StoredItem, error) {
	payload := subjects.ItemOptions{IDs: ids, ValueBytes: valueBytes}.Encode(subjects.Get)
	page, err := query(ctx, q, subjects.Get, payload, subjects.ParseReply[subjects.ItemsPage])
	return page.Items, err
}

// RemoveItems removes 1 to 1,000 items by their ids, in one transaction. The results are in the
// order of the ids. An item that cannot be removed has an Err in its result; the others are
// removed.
//
// Errors: [ErrBadRequest] for a malformed id, and nothing was changed; and those that every call
// can return.
func (q *handle) RemoveItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Remove, subjects.ItemOptions{IDs: ids})
}

// MoveItems moves 1 to 1,000 items to the end of a priority, in the order of the ids. Results and
// errors are as for RemoveItems.
func (q *PriorityQueue) MoveItems(ctx context.Context, ids []string,
	priority int64) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Move, subjects.ItemOptions{IDs: ids, Priority: priority})
}

// RedriveItems sends 1 to 1,000 dead letters of this queue back to the queues they came from. The
// results have these queues and the new ids. Otherwise, results and errors are as for RemoveItems.
func (q *handle) RedriveItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Redrive, subjects.ItemOptions{IDs: ids})
}

// ReleaseItems releases 1 to 1,000 leased items. Results and errors are as for RemoveItems.
func (q *handle) ReleaseItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Release, subjects.ItemOptions{IDs: ids})
}

func (q *handle) editItems(ctx context.Context, verb subjects.Verb,
	o subjects.ItemOptions) ([]ItemResult, error) {
	if len(o.IDs) == 0 { // a redrive without ids would be for any dead letters
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

// Release ends the lease of an item at once, and the item returns to its old place. The delivery
// does not count. It is for leases whose holder is known to be dead; one that is alive gets
// [ErrLeaseLost].
//
// Errors: [ErrLeaseLost] if the item is not leased, and those of Get.
func (q *handle) Release(ctx context.Context, id string) error {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Release)
	_, err := query(ctx, q, subjects.Release, payload, subjects.ParseReply[subjects.Removed])
	return err
}
