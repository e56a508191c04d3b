package client

import (
	"context"
	"fmt"
	"maps"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushItem is one item of a batch of pushes.
type PushItem struct {
	// Priority is the item's priority.
	Priority int64
	Message
}

// PushBatch adds 1 to 4,096 items in one transaction, and returns their ids in the same order once
// all of them are durable. After an error none of them is in the queue, unless it is
// [ErrUnknownOutcome]: then all of them are, or none.
//
// An item with [MsgID] or [Unique] (see Message.With) that is a duplicate is not pushed, and has
// the id of the item that was pushed before. PushBatchDuplicates says which.
//
// Items of one priority are served in the order of the slice. A call is never split: it is
// ErrTooLarge if the items do not fit into a message of NATS or a transaction, and the text has the
// limit.
//
// Errors: [ErrBadRequest], whose text has the index of the item, [ErrTooLarge], and those that
// every call can return.
func (q *PriorityQueue) PushBatch(ctx context.Context, items []PushItem) (ids []string, err error) {
	ids, _, err = q.PushBatchDuplicates(ctx, items)
	return ids, err
}

// PushBatchDuplicates is PushBatch, and returns the indexes of the duplicates.
func (q *PriorityQueue) PushBatchDuplicates(ctx context.Context, items []PushItem) (ids []string, duplicates []int, err error) {
	return q.pushBatch(ctx, len(items), withPriorities(items))
}

// EnqueueBatch adds 1 to 4,096 items at the end, as PriorityQueue.PushBatch does.
func (q *Queue) EnqueueBatch(ctx context.Context, items []Message) (ids []string, err error) {
	ids, _, err = q.EnqueueBatchDuplicates(ctx, items)
	return ids, err
}

// EnqueueBatchDuplicates is EnqueueBatch, and returns the indexes of the duplicates.
func (q *Queue) EnqueueBatchDuplicates(ctx context.Context, items []Message) (ids []string, duplicates []int, err error) {
	return q.pushBatch(ctx, len(items), withoutPriorities(items))
}

// itemAt returns the item with an index, of either kind of queue.
type itemAt func(i int) (priority int64, m *Message)

func withPriorities(items []PushItem) itemAt {
	return func(i int) (int64, *Message) { return items[i].Priority, &items[i].Message }
}

func withoutPriorities(items []Message) itemAt {
	return func(i int) (int64, *Message) { return 0, &items[i] }
}

func (q *handle) pushBatch(ctx context.Context, n int, item itemAt) (ids []string, duplicates []int, err error) {
	if n > subjects.MaxFrames { // the bridge would say so too, after it has received them
		return nil, nil, tooLarge("a batch of %d items: want at most %d", n, subjects.MaxFrames)
	}

	var payload []byte
	for i := range n {
		priority, m := item(i)
		if payload, err = q.appendFrame(payload, priority, m); err != nil {
			return nil, nil, badRequest("item %d: %v", i, err)
		}
	}
	return q.pushFrames(ctx, n, payload)
}

// appendFrame appends the frame of an item.
func (q *handle) appendFrame(b []byte, priority int64, m *Message) ([]byte, error) {
	h := m.Headers
	if _, given := h[subjects.HeaderPriority]; given && q.kind == subjects.Priority {
		h = maps.Clone(h) // the priority is that of the item, as for PushMsg
		delete(h, subjects.HeaderPriority)
	}

	headers, err := subjects.AppendHeaders(nil, h)
	if err != nil {
		return b, err
	}
	return subjects.AppendFrame(b, subjects.Frame{Priority: priority, Headers: headers, Value: m.Value}), nil
}

// pushFrames pushes n items, whose frames are the payload.
func (q *handle) pushFrames(ctx context.Context, n int, payload []byte) (ids []string, duplicates []int, err error) {
	reply, err := q.request(ctx, q.pushBatchVerb(), nil, payload)
	if err != nil {
		return nil, nil, err
	}

	pushed, err := subjects.ParsePushedBatch(reply.Data)
	if err != nil || len(pushed.IDs) != n {
		return nil, nil, badReply(fmt.Errorf("%.64q", reply.Data))
	}
	return pushed.IDs, pushed.Duplicates, nil
}

// maxBatchBytes bounds the batches of PushMany and Producer on a connection with that max_payload.
func maxBatchBytes(maxPayload int64) int {
	const most = 4 << 20 // larger ones are no faster, and a bridge has to hold them
	return int(min(maxPayload, most))
}

// maxBatchItems is how many items a batch can have so that the reply with their ids fits into a
// message.
func maxBatchItems(maxPayload int64) int {
	const each, rest = 54, 512 // bytes in the reply
	return max(1, int((maxPayload-rest)/each))
}
