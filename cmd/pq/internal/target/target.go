// Package target lets the commands of pq treat priority queues and FIFO queues
// alike.
package target

import (
	"context"

	"github.com/pqbridge/pqbridge/client"
)

// Queue is a queue of either kind. A FIFO queue has no priorities, so there
// priority and max mean nothing.
type Queue interface {
	// Push adds an item.
	Push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error)
	// PushMany adds items, as client.PriorityQueue.PushMany does.
	PushMany(ctx context.Context, priority int64, list []client.Message) ([]client.PushResult, error)
	// Pop takes the first item; with max, the last.
	Pop(ctx context.Context, max bool, options ...client.PopOption) (*client.Item, error)
	// LeaseItems leases up to n items, those that Pop would take.
	LeaseItems(ctx context.Context, n int, max bool, options ...client.LeaseOption) ([]*client.Delivery, error)
	// PeekItem returns the item that Pop would take.
	PeekItem(ctx context.Context, max bool) (*client.Item, error)
	// RankItem returns how many items Pop would return before the one with this id, or at least
	// that many.
	RankItem(ctx context.Context, id string, max bool) (n int64, atLeast bool, err error)
	// MoveItems moves items to the end of another priority.
	MoveItems(ctx context.Context, ids []string, priority int64) ([]client.ItemResult, error)

	// These are as the handles of package client have them.
	Len(ctx context.Context) (int64, error)
	Info(ctx context.Context) (*client.QueueInfo, error)
	Settings(ctx context.Context) (client.Settings, error)
	Items(ctx context.Context, o client.ItemsOptions) (client.ItemsPage, error)
	GetItems(ctx context.Context, ids []string, valueBytes int) ([]client.StoredItem, error)
	Configure(ctx context.Context, change client.Settings, reset ...string) (client.Settings, error)
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

func (q priorityQueue) Push(ctx context.Context, priority int64, m client.Message) (client.PushAck, error) {
	return q.PushMsg(ctx, priority, m)
}

func (q priorityQueue) PushMany(ctx context.Context, priority int64, list []client.Message) ([]client.PushResult, error) {
	items := make([]client.PushItem, len(list))
	for i, m := range list {
		items[i] = client.PushItem{Priority: priority, Message: m}
	}
	return q.PriorityQueue.PushMany(ctx, items)
}

func (q priorityQueue) Pop(ctx context.Context, max bool, options ...client.PopOption) (*client.Item, error) {
	if max {
		return q.PopMax(ctx, options...)
	}
	return q.PopMin(ctx, options...)
}

func (q priorityQueue) LeaseItems(ctx context.Context, n int, max bool, options ...client.LeaseOption) ([]*client.Delivery, error) {
	if max {
		return q.LeaseMaxBatch(ctx, n, options...)
	}
	return q.LeaseMinBatch(ctx, n, options...)
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

func (q fifoQueue) PushMany(ctx context.Context, _ int64, list []client.Message) ([]client.PushResult, error) {
	return q.EnqueueMany(ctx, list)
}

func (q fifoQueue) Pop(ctx context.Context, _ bool, options ...client.PopOption) (*client.Item, error) {
	return q.Dequeue(ctx, options...)
}

func (q fifoQueue) LeaseItems(ctx context.Context, n int, _ bool, options ...client.LeaseOption) ([]*client.Delivery, error) {
	return q.LeaseBatch(ctx, n, options...)
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
