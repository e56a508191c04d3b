package client

import (
	"cmp"
	"context"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Peek returns the item that Pop would remove, and leaves it in the queue.
//
// Errors: [ErrEmpty], and the errors of any request.
func (q *Queue) Peek(ctx context.Context) (*Item, error) {
	return q.peek(ctx, subjects.Peek)
}

// PeekMax returns the item that PopMax would remove, and leaves it in the queue. See
// [Queue.Peek].
func (q *Queue) PeekMax(ctx context.Context) (*Item, error) {
	return q.peek(ctx, subjects.PeekMax)
}

func (q *Queue) peek(ctx context.Context, verb subjects.Verb) (*Item, error) {
	reply, err := q.request(ctx, verb, nil, nil)
	if err != nil {
		return nil, err
	}
	return receivedIn(reply).item(), nil
}

// State is a state of items: [Ready], [Delayed] or [Leased]; or of jobs that are over: [Done] or
// [Dead].
type State = subjects.State

// The states of items, and of jobs that are over.
const (
	Ready   = subjects.StateReady
	Delayed = subjects.StateDelayed
	Leased  = subjects.StateLeased
	Done    = subjects.StateDone
	Dead    = subjects.StateDead
)

// Get returns an item in any state, and leaves it in the queue. As all methods that take an id, it
// finds the job wherever it is in the queue by now. A job that has died is found in the dead-letter
// queue: see Item.FoundIn. The state is "" if the item left no room for it in the reply.
//
// Errors: [ErrNotFound], [ErrBadRequest] for a malformed id, and the errors of any request.
func (q *Queue) Get(ctx context.Context, id string) (*Item, State, error) {
	return q.get(ctx, subjects.ItemOptions{ID: id})
}

// GetByMsgID is Get for the item of a push with a [MsgID], within the duplicate window of the
// queue.
func (q *Queue) GetByMsgID(ctx context.Context, msgID string) (*Item, State, error) {
	if err := wantUTF8(msgID); err != nil {
		return nil, "", err
	}
	if msgID == "" {
		return nil, "", badRequest("no message id")
	}
	return q.get(ctx, subjects.ItemOptions{MsgID: msgID})
}

func (q *Queue) get(ctx context.Context, o subjects.ItemOptions) (*Item, State, error) {
	payload := o.Encode(subjects.Get)
	reply, err := q.request(ctx, subjects.Get, nil, payload)
	if err != nil {
		return nil, "", err
	}

	item, state := receivedIn(reply).item(), State(reply.Header.Get(subjects.HeaderState))
	item.Attempts = trail.Parse(reply.Header[subjects.HeaderTrail])
	next := reply.Header[subjects.HeaderNext]
	item.Successors, item.MoreSuccessors = trail.ParseSuccessors(next)
	return item, state, nil
}

// Remove removes an item in any state by its id. If a worker has leased it, its acknowledgements
// return [ErrLeaseLost].
//
// Errors: as for Get.
func (q *Queue) Remove(ctx context.Context, id string) error {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Remove)
	_, err := query(ctx, q, subjects.Remove, payload, subjects.ParseReply[subjects.Removed])
	return err
}

// Move moves an item to the end of a priority, and returns its place there. The id of the job stays
// the same. To repeat a Move after [ErrUnknownOutcome], call MoveAt.
//
// Errors: [ErrLeased] for a leased item, and as for Get.
func (q *Queue) Move(ctx context.Context, id string, priority int64) (string, error) {
	return q.move(ctx, subjects.ItemOptions{ID: id, Priority: priority})
}

// MoveAt is Move for the item at a place, such as Item.Place or, of an item that has never moved,
// its id. An item that has left the place is not found, so a MoveAt can be repeated: it does not
// undo what has happened to the job since. [ErrNotFound] then means that the item was moved, or is
// gone.
func (q *Queue) MoveAt(ctx context.Context, place string, priority int64) (string, error) {
	return q.move(ctx, subjects.ItemOptions{ID: place, AtPlace: true, Priority: priority})
}

func (q *Queue) move(ctx context.Context, o subjects.ItemOptions) (string, error) {
	payload := o.Encode(subjects.Move)
	moved, err := query(ctx, q, subjects.Move, payload, subjects.ParseReply[subjects.Moved])
	return moved.Place, err
}

// Rank returns how many items Pop would return before this one. A leased or delayed
// item counts as if it came back now. If atLeast is true, there may be more: a rank is exact up to
// 10,000 items of the same priority.
//
// Errors: as for Get.
func (q *Queue) Rank(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.rank(ctx, subjects.ItemOptions{ID: id})
}

// RankMax is Rank for the order in which PopMax returns items.
func (q *Queue) RankMax(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.rank(ctx, subjects.ItemOptions{ID: id, Max: true})
}

func (q *Queue) rank(ctx context.Context, o subjects.ItemOptions) (int64, bool, error) {
	payload := o.Encode(subjects.Rank)
	ranked, err := query(ctx, q, subjects.Rank, payload, subjects.ParseReply[subjects.Ranked])
	return ranked.Rank, ranked.AtLeast, err
}

// StoredItem is an item in a queue, as Items and GetItems return it.
type StoredItem = subjects.StoredItem

// ItemsOptions says which items of a queue Items returns. The zero value is the first 100, with the
// first 1,024 bytes of their values; of finished jobs also of their results. ValueBytes changes
// both.
type ItemsOptions = subjects.ItemsOptions

// ItemsPage is one page of the items of a queue.
type ItemsPage = subjects.ItemsPage

// NoValues as ItemsOptions.ValueBytes asks for items without their values.
const NoValues = subjects.NoValues

// ItemResult is the result for one of several items.
type ItemResult subjects.ItemResult

// Err returns nil on success, or else the error that a request for this item alone would return,
// such as [ErrNotFound].
func (r ItemResult) Err() error {
	if r.Code == 0 {
		return nil
	}
	return &Error{Code: r.Code, Reason: r.Reason, Text: r.Text}
}

// Items returns items of the queue, and leaves them there. They are in the order in which they
// would be served if all were ready. A page looks at no more than 10,000 items or 8 MB, so the page
// of a search may be short or empty and still have a Next.
//
// Errors: [ErrBadRequest], [ErrOverloaded], and the errors of any request.
func (q *Queue) Items(ctx context.Context, o ItemsOptions) (ItemsPage, error) {
	err := wantUTF8(o.Match)
	for name, text := range o.Headers {
		err = cmp.Or(err, wantUTF8(name, text))
	}
	if err != nil {
		return ItemsPage{}, err
	}

	return query(ctx, q, subjects.Items, o.Encode(), subjects.ParseReply[subjects.ItemsPage])
}

// GetItems returns 1 to 1,000 items by their ids, each with up to valueBytes bytes of its value, at
// most 65,536; 0 means 1,024, and [NoValues] means none. Items that are not in the queue, or had no
// room in the reply, have a Code: see [StoredItem].
//
// Errors: [ErrBadRequest] for a malformed id, and the errors of any request.
func (q *Queue) GetItems(ctx context.Context, ids []string, valueBytes int) ([]StoredItem, error) {
	payload := subjects.ItemOptions{IDs: ids, ValueBytes: valueBytes}.Encode(subjects.Get)
	page, err := query(ctx, q, subjects.Get, payload, subjects.ParseReply[subjects.ItemsPage])
	return page.Items, err
}

// RemoveItems removes 1 to 1,000 items by their ids, in one transaction. The results are in the
// order of the ids. An item that cannot be removed has an Err in its result; the others are
// removed.
//
// Errors: [ErrBadRequest] for a malformed id, and nothing was changed; and the errors of any
// request.
func (q *Queue) RemoveItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Remove, subjects.ItemOptions{IDs: ids})
}

// RemoveItemsIn is RemoveItems for items in one state. Items in other states are not found. Only
// with Done does it remove the records of finished jobs.
func (q *Queue) RemoveItemsIn(
	ctx context.Context, state State, ids []string,
) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Remove, subjects.ItemOptions{IDs: ids, State: state})
}

// MoveItems moves 1 to 1,000 items to the end of a priority, in the order of the ids. Results and
// errors are as for RemoveItems.
func (q *Queue) MoveItems(ctx context.Context, ids []string, priority int64) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Move, subjects.ItemOptions{IDs: ids, Priority: priority})
}

// MoveItemsAt is MoveItems for the items at places: see MoveAt.
func (q *Queue) MoveItemsAt(
	ctx context.Context, places []string, priority int64,
) ([]ItemResult, error) {
	o := subjects.ItemOptions{IDs: places, AtPlace: true, Priority: priority}
	return q.editItems(ctx, subjects.Move, o)
}

// RedriveItems sends 1 to 1,000 dead letters of this queue back to the queues they came from, or
// runs finished jobs again. The results have these queues and the places there. Otherwise, results
// and errors are as for RemoveItems. To repeat it after [ErrUnknownOutcome], call RedriveItemsAt.
func (q *Queue) RedriveItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Redrive, subjects.ItemOptions{IDs: ids})
}

// RedriveItemsAt is RedriveItems for dead letters and finished jobs at places: see MoveAt. A job
// that has died or was done again meanwhile is at another place, and stays there.
func (q *Queue) RedriveItemsAt(ctx context.Context, places []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Redrive, subjects.ItemOptions{IDs: places, AtPlace: true})
}

// ReleaseItems releases 1 to 1,000 leased items. Results and errors are as for RemoveItems.
func (q *Queue) ReleaseItems(ctx context.Context, ids []string) ([]ItemResult, error) {
	return q.editItems(ctx, subjects.Release, subjects.ItemOptions{IDs: ids})
}

func (q *Queue) editItems(ctx context.Context, verb subjects.Verb,
	o subjects.ItemOptions) ([]ItemResult, error) {
	if len(o.IDs) == 0 { // a redrive without ids would be for any dead letters
		return nil, badRequest("no ids: want 1 to %d", subjects.MaxItems)
	}

	reply, err := query(ctx, q, verb, o.Encode(verb), subjects.ParseReply[itemResults])
	return reply.Results, err
}

// itemResults is a subjects.ItemResults whose results have methods.
type itemResults struct {
	Queue   string       `json:"queue"`
	Results []ItemResult `json:"results"`
}

// Release ends the lease of an item at once, and the item returns to its old place. The delivery
// does not count. It is for leases whose holder is known to be dead; one that is alive gets
// [ErrLeaseLost].
//
// Errors: [ErrLeaseLost] if the item is not leased, and as for Get.
func (q *Queue) Release(ctx context.Context, id string) error {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Release)
	_, err := query(ctx, q, subjects.Release, payload, subjects.ParseReply[subjects.Removed])
	return err
}
