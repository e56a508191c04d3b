package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Message is what a producer pushes. It must not change until the call returns.
type Message struct {
	Value []byte
	// Headers are stored with the value and returned with it. Names that begin
	// with Pq- are reserved: see With.
	Headers nats.Header
}

// Item is a message in a queue, with what the bridge says about it. It belongs to
// the caller. The ItemInfo is empty if the message left no room for it in the reply.
type Item struct {
	subjects.ItemInfo
	Message
}

// PushAck acknowledges a push: the item is durable.
type PushAck struct {
	// Queue is the name of the queue.
	Queue string
	// ID names the item.
	ID string
	// Priority is the item's priority, 0 in a FIFO queue.
	Priority int64
	// Duplicate says that nothing was pushed, because of MsgID or Unique: the item that was pushed
	// before has this ID and Priority.
	Duplicate bool
}

// PriorityQueue is a handle of a priority queue.
type PriorityQueue struct{ q queue }

// Push adds an item and returns once it is durable. PopMin takes the smallest
// priority first.
//
// Errors: [ErrBadRequest], [ErrTooLarge] and those that every call can return; see
// the variables of this package.
func (q *PriorityQueue) Push(ctx context.Context, priority int64, value []byte, options ...PushOption) (PushAck, error) {
	return q.PushMsg(ctx, priority, Message{Value: value}, options...)
}

// PushMsg is Push of a message with headers. A header Pq-Priority is ignored.
func (q *PriorityQueue) PushMsg(ctx context.Context, priority int64, m Message, options ...PushOption) (PushAck, error) {
	headers := maps.Clone(m.With(options...).Headers)
	delete(headers, subjects.HeaderPriority)
	if priority != 0 { // 0 is the bridge's default
		if headers == nil {
			headers = nats.Header{}
		}
		headers[subjects.HeaderPriority] = []string{strconv.FormatInt(priority, 10)}
	}
	return q.q.push(ctx, subjects.Push, headers, m.Value)
}

// PopMin takes the item with the smallest priority, the oldest if several share
// it. The item has left the queue when the bridge replies: if that reply is lost,
// so is the item.
//
// Each call is a request of its own. [PriorityQueue.PopMinBatch] and [Worker] share requests, which is several times as fast.
//
// Errors: [ErrEmpty], those that every call can return and, with options, [ErrBadRequest],
// [ErrTooLarge] for an item that exceeds MaxBytes, and [ErrNoHeartbeat].
func (q *PriorityQueue) PopMin(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.q.pop(ctx, subjects.PopMin, options)
}

// PopMax takes the item with the largest priority, the newest if several share
// it; otherwise it is PopMin.
func (q *PriorityQueue) PopMax(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.q.pop(ctx, subjects.PopMax, options)
}

// PeekMin returns the item that PopMin would take and leaves it in the queue.
func (q *PriorityQueue) PeekMin(ctx context.Context) (*Item, error) {
	return q.q.item(ctx, subjects.PeekMin)
}

// PeekMax returns the item that PopMax would take and leaves it in the queue.
func (q *PriorityQueue) PeekMax(ctx context.Context) (*Item, error) {
	return q.q.item(ctx, subjects.PeekMax)
}

// Len returns the number of ready items, so without those that are leased or delayed. Items
// written by other programs than bridges and package fdbpq do not count.
func (q *PriorityQueue) Len(ctx context.Context) (int64, error) { return q.q.length(ctx) }

// Queue is a handle of a FIFO queue.
type Queue struct{ q queue }

// Enqueue adds an item at the end and returns once it is durable. Its errors are
// those of PriorityQueue.Push.
func (q *Queue) Enqueue(ctx context.Context, value []byte, options ...PushOption) (PushAck, error) {
	return q.EnqueueMsg(ctx, Message{Value: value}, options...)
}

// EnqueueMsg is Enqueue of a message with headers.
func (q *Queue) EnqueueMsg(ctx context.Context, m Message, options ...PushOption) (PushAck, error) {
	return q.q.push(ctx, subjects.Enqueue, m.With(options...).Headers, m.Value)
}

// Dequeue takes the oldest item, as PriorityQueue.PopMin takes the first.
func (q *Queue) Dequeue(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.q.pop(ctx, subjects.Dequeue, options)
}

// Peek returns the item that Dequeue would take and leaves it in the queue.
func (q *Queue) Peek(ctx context.Context) (*Item, error) {
	return q.q.item(ctx, subjects.Peek)
}

// Len is PriorityQueue.Len.
func (q *Queue) Len(ctx context.Context) (int64, error) { return q.q.length(ctx) }

func (q *queue) push(ctx context.Context, verb subjects.Verb, headers nats.Header, value []byte) (PushAck, error) {
	if err := subjects.CheckHeaders(headers); err != nil {
		return PushAck{}, &Error{Code: subjects.CodeBadRequest, Text: err.Error()}
	}
	reply, err := q.request(ctx, verb, headers, value)
	if err != nil {
		return PushAck{}, err
	}
	pushed, err := subjects.ParsePushed(reply.Data)
	if err != nil || pushed.ID == "" {
		return PushAck{}, badReply(fmt.Errorf("%.64q", reply.Data))
	}
	ack := PushAck{Queue: pushed.Queue, ID: pushed.ID, Duplicate: pushed.Duplicate}
	if pushed.Priority != nil {
		ack.Priority = *pushed.Priority
	}
	return ack, nil
}

func (q *queue) pop(ctx context.Context, verb subjects.Verb, options []PopOption) (*Item, error) {
	reply, err := q.fetchOne(ctx, verb, popOptions(options))
	if err != nil {
		return nil, err
	}
	return itemOf(reply), nil
}

func (q *queue) item(ctx context.Context, verb subjects.Verb) (*Item, error) {
	reply, err := q.request(ctx, verb, nil, nil)
	if err != nil {
		return nil, err
	}
	return itemOf(reply), nil
}

// itemOf returns the item in a reply, whose value it takes over.
func itemOf(reply *nats.Msg) *Item {
	item := &Item{Message: Message{Value: reply.Data, Headers: nats.Header{}}}
	var err error
	if item.ItemInfo, err = subjects.ParseItemHeaders(reply.Header); err != nil {
		// A pop has already removed the item: returning an error would lose it.
		item.ItemInfo.ID = reply.Header.Get(subjects.HeaderID)
	}
	for name, values := range reply.Header {
		if !strings.HasPrefix(name, subjects.Reserved) {
			item.Headers[name] = slices.Clone(values)
		}
	}
	return item
}

func (q *queue) length(ctx context.Context) (int64, error) {
	reply, err := q.request(ctx, subjects.Len, nil, nil)
	if err != nil {
		return 0, err
	}
	length, err := subjects.ParseLength(reply.Data)
	if err != nil || length.Queue == "" {
		return 0, fmt.Errorf("%w: %.64q", ErrBadReply, reply.Data)
	}
	return length.Len, nil
}
