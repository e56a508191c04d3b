package client

import (
	"context"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushItem is one item of a batch of pushes.
type PushItem struct {
	// Priority is the item's priority.
	Priority int64
	Message
}

// PushBatch adds 1 to 4,096 items in one transaction, and returns their ids in the same
// order once all of them are durable. After an error none of them is in the queue, unless it
// is [ErrUnknownOutcome]: then all of them are, or none.
//
// An item with [MsgID] or [Unique] (see Message.With) that is a duplicate is not pushed, and has the id of the
// item that was pushed before. PushBatchDuplicates says which.
//
// Items of one priority are served in the order of the slice. A call is never split: it is
// ErrTooLarge if the items do not fit into a message of NATS or a transaction, and the text
// has the limit.
//
// Errors: [ErrBadRequest], whose text has the index of the item, [ErrTooLarge], and those
// that every call can return.
func (q *PriorityQueue) PushBatch(ctx context.Context, items []PushItem) (ids []string, err error) {
	ids, _, err = q.PushBatchDuplicates(ctx, items)
	return ids, err
}

// PushBatchDuplicates is PushBatch, and returns the indexes of the duplicates.
func (q *PriorityQueue) PushBatchDuplicates(ctx context.Context, items []PushItem) (ids []string, duplicates []int, err error) {
	return q.q.pushBatch(ctx, subjects.PushBatch, len(items), func(i int) (int64, *Message) {
		return items[i].Priority, &items[i].Message
	})
}

// EnqueueBatch adds 1 to 4,096 items at the end, as PriorityQueue.PushBatch does.
func (q *Queue) EnqueueBatch(ctx context.Context, items []Message) (ids []string, err error) {
	ids, _, err = q.EnqueueBatchDuplicates(ctx, items)
	return ids, err
}

// EnqueueBatchDuplicates is EnqueueBatch, and returns the indexes of the duplicates.
func (q *Queue) EnqueueBatchDuplicates(ctx context.Context, items []Message) (ids []string, duplicates []int, err error) {
	return q.q.pushBatch(ctx, subjects.EnqueueBatch, len(items), func(i int) (int64, *Message) {
		return 0, &items[i]
	})
}

func (q *queue) pushBatch(ctx context.Context, verb subjects.Verb, n int, item func(i int) (int64, *Message)) (ids []string, duplicates []int, err error) {
	if n > subjects.MaxFrames { // the bridge would say so too, after it has received them
		return nil, nil, &Error{Code: subjects.CodeTooLarge, Text: fmt.Sprintf("a batch of %d items: want at most %d", n, subjects.MaxFrames)}
	}
	var payload []byte
	for i := range n {
		var err error
		priority, m := item(i)
		if payload, err = appendFrame(payload, verb, priority, m); err != nil {
			return nil, nil, &Error{Code: subjects.CodeBadRequest, Text: fmt.Sprintf("item %d: %v", i, err)}
		}
	}
	return q.pushFrames(ctx, verb, n, payload)
}

// pushFrames pushes n items, whose frames are the payload.
func (q *queue) pushFrames(ctx context.Context, verb subjects.Verb, n int, payload []byte) (ids []string, duplicates []int, err error) {
	reply, err := q.request(ctx, verb, nil, payload)
	if err != nil {
		return nil, nil, err
	}
	pushed, err := subjects.ParsePushedBatch(reply.Data)
	if err != nil || len(pushed.IDs) != n {
		return nil, nil, badReply(fmt.Errorf("%.64q", reply.Data))
	}
	return pushed.IDs, pushed.Duplicates, nil
}

// appendFrame appends the frame of an item.
func appendFrame(b []byte, verb subjects.Verb, priority int64, m *Message) ([]byte, error) {
	headers, err := appendHeaders(nil, m.Headers, verb)
	if err != nil {
		return b, err
	}
	return subjects.AppendFrame(b, subjects.Frame{Priority: priority, Headers: headers, Value: m.Value}), nil
}

// appendHeaders appends the headers of an item. Those of a priority queue leave the priority
// to the item, as PushMsg does.
func appendHeaders(b []byte, h nats.Header, verb subjects.Verb) ([]byte, error) {
	if _, given := h[subjects.HeaderPriority]; given && verb == subjects.PushBatch {
		h = maps.Clone(h)
		delete(h, subjects.HeaderPriority)
	}
	return subjects.AppendHeaders(b, h)
}
