package client

import "context"

// Pusher is what most programs need of a priority queue: *PriorityQueue has it. A test can do with
// less than a queue, as the example shows. [Message.With] tells what the options are.
type Pusher interface {
	Push(ctx context.Context, priority int64, value []byte, options ...PushOption) (PushAck, error)
	PushMsg(ctx context.Context, priority int64, m Message, options ...PushOption) (PushAck, error)
}

// Enqueuer is what most programs need of a FIFO queue: *Queue has it.
type Enqueuer interface {
	Enqueue(ctx context.Context, value []byte, options ...PushOption) (PushAck, error)
	EnqueueMsg(ctx context.Context, m Message, options ...PushOption) (PushAck, error)
}

var (
	_ Pusher   = (*PriorityQueue)(nil)
	_ Enqueuer = (*Queue)(nil)
)
