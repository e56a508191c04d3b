// Package target lets the commands of pq treat priority queues and FIFO queues
// alike.
package target

import (
	"context"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Queue is a queue of either kind. A FIFO queue has no priorities, so there
// priority and max mean nothing.
type Queue interface {
	// Push adds an item.
	Push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error)
	// PushMany adds items, as client.PriorityQueue.PushMany does.
	PushMany(ctx context.Context, items []client.PushItem) ([]client.PushResult, error)
	// PopItems takes up to n items, the first ones.
	PopItems(ctx context.Context, n int) ([]*client.Item, error)
	// LeaseItems leases up to n items, the first ones; with max, the last ones.
	LeaseItems(
		ctx context.Context, n int, max bool, options ...client.LeaseOption,
	) ([]*client.Delivery, error)
	// PeekItem returns the item that LeaseItems would lease.
	PeekItem(ctx context.Context, max bool) (*client.Item, error)
	// RankItem returns how many items come before the one with this id, or at least that many.
	RankItem(ctx context.Context, id string, max bool) (n int64, atLeast bool, err error)
	// MoveItems moves items to the end of another priority.
	MoveItems(ctx context.Context, ids []string, priority int64) ([]client.ItemResult, error)

	// These are as the handles of package client have them.
	Len(ctx context.Context) (int64, error)
	Info(ctx context.Context) (*client.QueueInfo, error)
	Settings(ctx context.Context) (client.Settings, error)
	Items(ctx context.Context, o client.ItemsOptions) (client.ItemsPage, error)
	GetItems(ctx context.Context, ids []string, valueBytes int) ([]client.StoredItem, error)
	ChangeSettings(ctx context.Context, c *subjects.Change) (client.Settings, error)
	Get(ctx context.Context, id string) (*client.Item, client.State, error)
	RemoveItems(ctx context.Context, ids []string) ([]client.ItemResult, error)
	RedriveItems(ctx context.Context, ids []string) ([]client.ItemResult, error)
	ReleaseItems(ctx context.Context, ids []string) ([]client.ItemResult, error)
	PurgePart(ctx context.Context, state client.State) (n int64, more bool, err error)
	RedrivePart(ctx context.Context, max int) (n int64, more bool, err error)
	SetSchedule(ctx context.Context, s client.Schedule) (client.ScheduleRecord, error)
	PauseSchedule(ctx context.Context, id string, paused bool) (client.ScheduleRecord, error)
	RunSchedule(ctx context.Context, id string) (client.ScheduleRecord, error)
	Schedules(ctx context.Context) ([]*client.ScheduleRecord, error)
	Unschedule(ctx context.Context, id string) error
	NewWorker(work client.Work, o client.WorkerOptions) (*client.Worker, error)
}

// New returns the queue of that kind and name.
func New(c *client.Client, fifo bool, name string) Queue {
	if fifo {
		return fifoQueue{c.Queue(name)}
	}
	return priorityQueue{c.PriorityQueue(name)}
}

type priorityQueue struct{ *client.PriorityQueue }

func (q priorityQueue) Push(
	ctx context.Context, priority int64, m client.Message,
) (client.PushAck, error) {
	return q.PushMsg(ctx, priority, m)
}

func (q priorityQueue) PopItems(ctx context.Context, n int) ([]*client.Item, error) {
	if n > 1 {
		return q.PopMinBatch(ctx, n)
	}
	return one(q.PopMin(ctx))
}

func (q priorityQueue) LeaseItems(
	ctx context.Context, n int, max bool, options ...client.LeaseOption,
) ([]*client.Delivery, error) {
	switch {
	case n > 1 && max:
		return q.LeaseMaxBatch(ctx, n, options...)
	case n > 1:
		return q.LeaseMinBatch(ctx, n, options...)
	case max:
		return one(q.LeaseMax(ctx, options...))
	}

	return one(q.LeaseMin(ctx, options...))
}

// one returns the result of a request for a single item, which is smaller than one for a batch.
func one[T any](item *T, err error) ([]*T, error) {
	if err != nil {
		return nil, err
	}
	return []*T{item}, nil
}

func (q priorityQueue) PeekItem(ctx context.Context, max bool) (*client.Item, error) {
	if max {
		return q.PeekMax(ctx)
	}
	return q.PeekMin(ctx)
}

func (q priorityQueue) RankItem(ctx context.Context, id string, max bool) (int64, bool, error) {
	if max {
		return q.RankMax(ctx, id)
	}
	return q.Rank(ctx, id)
}

type fifoQueue struct{ *client.Queue }

func (q fifoQueue) Push(ctx context.Context, _ int64, m client.Message) (client.PushAck, error) {
	return q.EnqueueMsg(ctx, m)
}

func (q fifoQueue) PushMany(
	ctx context.Context, items []client.PushItem,
) ([]client.PushResult, error) {
	list := make([]client.Message, len(items))
	for i := range items {
		list[i] = items[i].Message
	}
	return q.EnqueueMany(ctx, list)
}

func (q fifoQueue) PopItems(ctx context.Context, n int) ([]*client.Item, error) {
	if n > 1 {
		return q.DequeueBatch(ctx, n)
	}
	return one(q.Dequeue(ctx))
}

func (q fifoQueue) LeaseItems(
	ctx context.Context, n int, _ bool, options ...client.LeaseOption,
) ([]*client.Delivery, error) {
	if n > 1 {
		return q.LeaseBatch(ctx, n, options...)
	}
	return one(q.Lease(ctx, options...))
}

func (q fifoQueue) PeekItem(ctx context.Context, _ bool) (*client.Item, error) {
	return q.Peek(ctx)
}

func (q fifoQueue) RankItem(ctx context.Context, id string, _ bool) (int64, bool, error) {
	return q.Rank(ctx, id)
}

// MoveItems is not there for FIFO queues.
func (q fifoQueue) MoveItems(context.Context, []string, int64) ([]client.ItemResult, error) {
	return nil, client.ErrBadRequest
}
