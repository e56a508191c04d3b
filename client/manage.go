package client

import (
	"context"
	"fmt"

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
