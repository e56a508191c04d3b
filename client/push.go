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
	// ID is the id of the job: it stays the same wherever the item goes.
	ID string
	// Priority is the item's priority, 0 in a FIFO queue.
	Priority int64
	// Duplicate means that nothing was pushed, because of MsgID or Unique. ID and Priority describe
	// the push that came before.
	Duplicate bool
}

// Push adds an item and returns once it is durable. Pop returns the smallest priority first. In a
// FIFO queue the priority must be 0.
//
// Errors: [ErrBadRequest], [ErrTooLarge], [ErrOverloaded] if the queue is full, and the errors of
// any request.
func (q *Queue) Push(ctx context.Context, priority int64, value []byte,
	options ...PushOption) (PushAck, error) {
	return q.PushMsg(ctx, priority, Message{Value: value}, options...)
}

// PushMsg is [Queue.Push] for a message with headers. It ignores a header Pq-Priority.
func (q *Queue) PushMsg(ctx context.Context, priority int64, m Message,
	options ...PushOption) (PushAck, error) {
	if err := q.checkPriority(priority); err != nil {
		return PushAck{}, badRequest("%v", err)
	}

	headers := maps.Clone(m.With(options...).Headers)
	delete(headers, subjects.HeaderPriority)

	if priority != 0 { // 0 is the bridge's default
		if headers == nil {
			headers = nats.Header{}
		}
		headers[subjects.HeaderPriority] = []string{strconv.FormatInt(priority, 10)}
	}
	if err := subjects.CheckHeaders(headers); err != nil {
		return PushAck{}, badRequest("%v", err)
	}

	reply, err := q.request(ctx, subjects.Push, headers, m.Value)
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

// checkPriority refuses the priorities that a FIFO queue cannot have.
func (q *Queue) checkPriority(priority int64) error {
	if q.kind == subjects.FIFO && priority != 0 {
		return fmt.Errorf("priority %d in a FIFO queue: want 0", priority)
	}
	return nil
}

// Pusher is the part of a [Queue] that most producers need. A test can implement it without a
// queue, as the example shows; [Message.With] shows what the options say.
type Pusher interface {
	Push(ctx context.Context, priority int64, value []byte, options ...PushOption) (PushAck, error)
	PushMsg(ctx context.Context, priority int64, m Message, options ...PushOption) (PushAck, error)
}

var _ Pusher = (*Queue)(nil)
