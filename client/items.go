package client

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// PeekMin returns the item that PopMin would take and leaves it in the queue.
func (q *PriorityQueue) PeekMin(ctx context.Context) (*Item, error) {
	return q.peek(ctx, subjects.PeekMin)
}

// PeekMax returns the item that PopMax would take and leaves it in the queue.
func (q *PriorityQueue) PeekMax(ctx context.Context) (*Item, error) {
	return q.peek(ctx, subjects.PeekMax)
}

// Peek returns the item that Dequeue would take and leaves it in the queue.
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

// Get returns an item by its id, whichever state it is in, and leaves it there. The state is "" if
// the item left no room for it in the reply.
//
// Errors: [ErrNotFound], [ErrBadRequest] for what is no id, and those that every call can return.
func (q *handle) Get(ctx context.Context, id string) (*Item, State, error) {
	reply, err := q.request(ctx, subjects.Get, nil, subjects.ItemOptions{ID: id}.Encode(subjects.Get))
	if err != nil {
		return nil, "", err
	}
	return receivedIn(reply).item(), State(reply.Header.Get(subjects.HeaderState)), nil
}

// Remove removes an item by its id, whichever state it is in. A worker that leased it gets
// [ErrLeaseLost] for its acknowledgements.
//
// Errors: as Get.
func (q *handle) Remove(ctx context.Context, id string) error {
	payload := subjects.ItemOptions{ID: id}.Encode(subjects.Remove)
	_, err := query(ctx, q, subjects.Remove, payload, subjects.ParseReply[subjects.Removed])
	return err
}

// Move moves an item to the end of a priority, and returns the id that it has there.
//
// Errors: [ErrLeased] for an item that is leased, and as Get.
func (q *PriorityQueue) Move(ctx context.Context, id string, priority int64) (string, error) {
	payload := subjects.ItemOptions{ID: id, Priority: priority}.Encode(subjects.Move)
	moved, err := query(ctx, &q.handle, subjects.Move, payload, subjects.ParseReply[subjects.Moved])
	return moved.ID, err
}

// Rank returns how many items PopMin or Dequeue would return before this one; for an item that is
// leased or delayed, if it came back now. If atLeast is true, there may be more: a rank is exact up
// to 10,000 items of the same priority.
//
// Errors: as Get.
func (q *handle) Rank(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.rank(ctx, subjects.ItemOptions{ID: id})
}

// RankMax is Rank for PopMax.
func (q *PriorityQueue) RankMax(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.rank(ctx, subjects.ItemOptions{ID: id, Max: true})
}

func (q *handle) rank(ctx context.Context, o subjects.ItemOptions) (int64, bool, error) {
	ranked, err := query(ctx, q, subjects.Rank, o.Encode(subjects.Rank), subjects.ParseReply[subjects.Ranked])
	return ranked.Rank, ranked.AtLeast, err
}
