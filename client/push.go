package client

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushAck says that a pushed item is durable.
type PushAck struct {
	// Queue is the name of the queue.
	Queue string
	// ID is the id of the item.
	ID string
	// Priority is the item's priority, 0 in a FIFO queue.
	Priority int64
	// Duplicate means that nothing was pushed, because of MsgID or Unique. ID and Priority are
	// those of the item that was pushed before.
	Duplicate bool
}

// Push adds an item and returns once it is durable. PopMin returns the smallest priority first.
//
// Errors: [ErrBadRequest], [ErrTooLarge], [ErrOverloaded] if the queue is full, and those that
// every call can return.
func (q *PriorityQueue) Push(ctx context.Context, priority int64, value []byte,
	options ...PushOption) (PushAck, error) {
	return q.PushMsg(ctx, priority, Message{Value: value}, options...)
}

// PushMsg is [PriorityQueue.Push] for a message with headers. It ignores a header Pq-Priority.
func (q *PriorityQueue) PushMsg(ctx context.Context, priority int64, m Message,
	options ...PushOption) (PushAck, error) {
	headers := maps.Clone(m.With(options...).Headers)
	delete(headers, subjects.HeaderPriority)

	if priority != 0 { // 0 is the bridge's default
		if headers == nil {
			headers = nats.Header{}
		}
		headers[subjects.HeaderPriority] = []string{strconv.FormatInt(priority, 10)}
	}
	return q.push(ctx, subjects.Push, headers, m.Value)
}

// Enqueue adds an item at the end and returns once it is durable. Its errors are those of
// [PriorityQueue.Push].
func (q *Queue) Enqueue(ctx context.Context, value []byte, options ...PushOption) (PushAck, error) {
	return q.EnqueueMsg(ctx, Message{Value: value}, options...)
}

// EnqueueMsg is [Queue.Enqueue] for a message with headers.
func (q *Queue) EnqueueMsg(ctx context.Context, m Message, options ...PushOption) (PushAck, error) {
	return q.push(ctx, subjects.Enqueue, m.With(options...).Headers, m.Value)
}

func (q *handle) push(ctx context.Context, verb subjects.Verb, headers nats.Header,
	value []byte) (PushAck, error) {
	if err := subjects.CheckHeaders(headers); err != nil {
		return PushAck{}, badRequest("%v", err)
	}

	reply, err := q.request(ctx, verb, headers, value)
	if err != nil {
		return PushAck{}, err
	}

	pushed, err := subjects.ParseReply[subjects.Pushed](reply.Data)
	if err != nil || pushed.ID == "" {
		return PushAck{}, badReply(fmt.Errorf("%.64q", reply.Data))
	}

	ack := PushAck{Queue: pushed.Queue, ID: pushed.ID, Duplicate: pushed.Duplicate}
	if pushed.Priority != nil {
		ack.Priority = *pushed.Priority
	}
	return ack, nil
}

// Pusher is the part of a [PriorityQueue] that most producers need. A test can implement it without
// a queue, as the example shows; [Message.With] shows what the options say.
type Pusher interface {
	Push(ctx context.Context, priority int64, value []byte, options ...PushOption) (PushAck, error)
	PushMsg(ctx context.Context, priority int64, m Message, options ...PushOption) (PushAck, error)
}

// Enqueuer is the part of a [Queue] that most producers need.
type Enqueuer interface {
	Enqueue(ctx context.Context, value []byte, options ...PushOption) (PushAck, error)
	EnqueueMsg(ctx context.Context, m Message, options ...PushOption) (PushAck, error)
}

var (
	_ Pusher   = (*PriorityQueue)(nil)
	_ Enqueuer = (*Queue)(nil)
)
