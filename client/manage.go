package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// QueueInfo says how many items of a queue are in each state, and more.
type QueueInfo = subjects.QueueInfo

// Info returns how many items of the queue are in each state, and more. Items that other programs
// wrote with the bare recipe are not counted.
//
// Errors: those that every call can return.
func (q *PriorityQueue) Info(ctx context.Context) (*QueueInfo, error) { return q.q.info(ctx) }

// Info is PriorityQueue.Info.
func (q *Queue) Info(ctx context.Context) (*QueueInfo, error) { return q.q.info(ctx) }

func (q *queue) info(ctx context.Context) (*QueueInfo, error) {
	reply, err := q.request(ctx, subjects.Info, nil, nil)
	if err != nil {
		return nil, err
	}
	info, err := subjects.ParseQueueInfo(reply.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	return info, nil
}

// State is a state of items: [Ready], [Delayed] or [Leased].
type State = subjects.State

// The states of items.
const (
	Ready   = subjects.StateReady
	Delayed = subjects.StateDelayed
	Leased  = subjects.StateLeased
)

// Get returns an item by its id, whichever state it is in, and leaves it there. The state is "" if the item
// left no room for it in the reply.
//
// Errors: [ErrNotFound], [ErrBadRequest] for what is no id, and those that every call can return.
func (q *PriorityQueue) Get(ctx context.Context, id string) (*Item, State, error) {
	return q.q.get(ctx, id)
}

// Remove removes an item by its id, whichever state it is in. Whoever leased it gets [ErrLeaseLost] for its
// acknowledgements.
//
// Errors: as Get.
func (q *PriorityQueue) Remove(ctx context.Context, id string) error { return q.q.remove(ctx, id) }

// Rank returns how many items PopMin would return before this one; of an item that is leased or delayed, if it
// came back now. If atLeast is true, there may be more: a rank is exact up to 10,000 items of the same priority.
//
// Errors: as Get.
func (q *PriorityQueue) Rank(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.q.rank(ctx, subjects.ItemOptions{ID: id})
}

// RankMax is Rank for PopMax.
func (q *PriorityQueue) RankMax(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.q.rank(ctx, subjects.ItemOptions{ID: id, Max: true})
}

// Move moves an item to the end of a priority, and returns the id that it has there.
//
// Errors: [ErrLeased] for an item that is leased, and as Get.
func (q *PriorityQueue) Move(ctx context.Context, id string, priority int64) (string, error) {
	moved, err := manage[subjects.Moved](ctx, &q.q, subjects.Move, subjects.ItemOptions{ID: id, Priority: priority}.Encode(subjects.Move))
	return moved.ID, err
}

// Purge removes the items in a state, or with "" all items, and returns how many that were. It takes as many
// transactions as it needs; an item that changes its state meanwhile may stay.
//
// Errors: [ErrUnavailable] if there were more than there was time for. The text says how many were removed: purge
// again. And those that every call can return.
func (q *PriorityQueue) Purge(ctx context.Context, state State) (int64, error) {
	return q.q.purge(ctx, state)
}

// Redrive sends up to max dead letters of this queue, 1,000 if it is 0, back to the queues that they were in, and
// returns how many that were. They are pushed again: with a new id, at the end of their priority.
//
// Errors: as Purge.
func (q *PriorityQueue) Redrive(ctx context.Context, max int) (int64, error) {
	return q.q.redrive(ctx, max)
}

// Get is PriorityQueue.Get.
func (q *Queue) Get(ctx context.Context, id string) (*Item, State, error) { return q.q.get(ctx, id) }

// Remove is PriorityQueue.Remove.
func (q *Queue) Remove(ctx context.Context, id string) error { return q.q.remove(ctx, id) }

// Rank is PriorityQueue.Rank.
func (q *Queue) Rank(ctx context.Context, id string) (n int64, atLeast bool, err error) {
	return q.q.rank(ctx, subjects.ItemOptions{ID: id})
}

// Purge is PriorityQueue.Purge.
func (q *Queue) Purge(ctx context.Context, state State) (int64, error) { return q.q.purge(ctx, state) }

// Redrive is PriorityQueue.Redrive.
func (q *Queue) Redrive(ctx context.Context, max int) (int64, error) { return q.q.redrive(ctx, max) }

func (q *queue) get(ctx context.Context, id string) (*Item, State, error) {
	reply, err := q.request(ctx, subjects.Get, nil, subjects.ItemOptions{ID: id}.Encode(subjects.Get))
	if err != nil {
		return nil, "", err
	}
	state := State(reply.Header.Get(subjects.HeaderState))
	return itemOf(reply), state, nil
}

func (q *queue) remove(ctx context.Context, id string) error {
	_, err := manage[subjects.Removed](ctx, q, subjects.Remove, subjects.ItemOptions{ID: id}.Encode(subjects.Remove))
	return err
}

func (q *queue) rank(ctx context.Context, o subjects.ItemOptions) (int64, bool, error) {
	ranked, err := manage[subjects.Ranked](ctx, q, subjects.Rank, o.Encode(subjects.Rank))
	return ranked.Rank, ranked.AtLeast, err
}

func (q *queue) purge(ctx context.Context, state State) (int64, error) {
	purged, err := manage[subjects.Purged](ctx, q, subjects.Purge, subjects.EncodePurge(state))
	return purged.Purged, err
}

func (q *queue) redrive(ctx context.Context, max int) (int64, error) {
	redriven, err := manage[subjects.Redriven](ctx, q, subjects.Redrive, subjects.EncodeRedrive(max))
	return redriven.Redriven, err
}

// manage sends a request and parses the reply.
func manage[T subjects.Removed | subjects.Moved | subjects.Ranked | subjects.Purged | subjects.Redriven](
	ctx context.Context, q *queue, verb subjects.Verb, payload []byte,
) (reply T, err error) {
	m, err := q.request(ctx, verb, nil, payload)
	if err != nil {
		return reply, err
	}
	if reply, err = subjects.ParseReply[T](m.Data); err != nil {
		err = fmt.Errorf("%w: %w", ErrBadReply, err)
		if writes(verb) {
			err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
	}
	return reply, err
}

// QueueList is a page of the list of queues, sorted by name.
type QueueList = subjects.QueueList

// ListPriorityQueues returns up to limit priority queues that have items or settings, 1 to 1,000, or 1,000 if it is 0: those
// that come after the given name, "" for the first. QueueList.Next is where the next page begins.
//
// Errors: [ErrBadRequest], and those that every call can return.
func (c *Client) ListPriorityQueues(ctx context.Context, after string, limit int) (QueueList, error) {
	return c.list(ctx, subjects.Priority, after, limit)
}

// ListQueues is ListPriorityQueues for FIFO queues.
func (c *Client) ListQueues(ctx context.Context, after string, limit int) (QueueList, error) {
	return c.list(ctx, subjects.FIFO, after, limit)
}

func (c *Client) list(ctx context.Context, kind subjects.Kind, after string, limit int) (QueueList, error) {
	subject, err := c.grammar.Build(subjects.Request{Kind: kind, Verb: subjects.List})
	if err != nil {
		return QueueList{}, err
	}
	m := &nats.Msg{Subject: subject, Data: subjects.ListOptions{After: after, Limit: limit}.Encode()}
	reply, err := c.request(ctx, m, false)
	if err != nil {
		return QueueList{}, err
	}
	list, err := subjects.ParseQueueList(reply.Data)
	if err != nil {
		return QueueList{}, fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	return list, nil
}
