package client

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// PopMin takes the item with the smallest priority, the oldest if several share it. The item has
// left the queue when the bridge replies: if that reply is lost, so is the item.
//
// Each call is a request of its own. [PriorityQueue.PopMinBatch] and [Worker] share requests, which
// is several times as fast.
//
// Errors: [ErrEmpty], those that every call can return and, with options, [ErrBadRequest],
// [ErrTooLarge] for an item that exceeds MaxBytes, and [ErrNoHeartbeat].
func (q *PriorityQueue) PopMin(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.PopMin, options)
}

// PopMax takes the item with the largest priority, the newest if several share it; otherwise it is
// PopMin.
func (q *PriorityQueue) PopMax(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.PopMax, options)
}

// Dequeue takes the oldest item, as PriorityQueue.PopMin takes the first.
func (q *Queue) Dequeue(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.Dequeue, options)
}

// PopMinBatch takes up to n items, 1 to 1,000, in one transaction: those that n calls of PopMin
// would take, in that order. With [Expires] it returns once it has n items or the time is over,
// without with those that are there.
//
// There may be more items than it returns, because of MaxBytes, or because no more fit into a
// transaction. If it returns items and an error, the items have left the queue; the error says why
// there are not more.
//
// Errors: [ErrEmpty] if there was none, [ErrBadRequest], [ErrTooLarge] if the first exceeds
// MaxBytes, [ErrNoHeartbeat], and those that every call can return. With [ErrUnknownOutcome] more
// items may have left the queue than were returned.
func (q *PriorityQueue) PopMinBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.PopMin, n, options)
}

// PopMaxBatch is PopMinBatch with PopMax.
func (q *PriorityQueue) PopMaxBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.PopMax, n, options)
}

// DequeueBatch takes up to n items, as PriorityQueue.PopMinBatch does.
func (q *Queue) DequeueBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.Dequeue, n, options)
}

func (q *handle) pop(ctx context.Context, verb subjects.Verb, options []PopOption) (*Item, error) {
	reply, err := q.fetchOne(ctx, verb, popOptions(0, options))
	if err != nil {
		return nil, err
	}
	return reply.item(), nil
}

func (q *handle) popBatch(ctx context.Context, verb subjects.Verb, n int, options []PopOption) (items []*Item, err error) {
	err = q.fetchBatch(ctx, verb, popOptions(n, options), func(r *received) error {
		items = append(items, r.item())
		return nil
	})
	return items, err
}
