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

// PushBatch adds 1 to 4,096 items in one transaction, and returns their acknowledgements in the same
// order once all of them are durable. After an error none of them is in the queue, unless it is
// [ErrUnknownOutcome]: then all of them are, or none.
//
// An item with [MsgID] or [Unique] (see Message.With) may be a duplicate: see [PushAck.Duplicate]. Its
// acknowledgement has its own priority.
//
// Items of one priority are served in the order of the slice. A call is never split: it is
// ErrTooLarge if the items do not fit into a message of NATS or a transaction, and the text has the
// limit.
//
// Errors: [ErrBadRequest], whose text has the index of the item, [ErrTooLarge], and those that
// every call can return.
func (q *PriorityQueue) PushBatch(ctx context.Context, items []PushItem) ([]PushAck, error) {
	return q.pushBatch(ctx, items)
}

// EnqueueBatch adds 1 to 4,096 items at the end, as PriorityQueue.PushBatch does.
func (q *Queue) EnqueueBatch(ctx context.Context, items []Message) ([]PushAck, error) {
	return q.pushBatch(ctx, pushItems(items))
}

func pushItems(messages []Message) []PushItem {
	items := make([]PushItem, len(messages))
	for i, m := range messages {
		items[i].Message = m
	}
	return items
}

func (q *handle) pushBatch(ctx context.Context, items []PushItem) (acks []PushAck, err error) {
	if len(items) > subjects.MaxFrames { // the bridge would say so too, after it has received them
		return nil, tooLarge("a batch of %d items: want at most %d", len(items), subjects.MaxFrames)
	}

	var payload []byte
	for i := range items {
		if payload, err = q.appendFrame(payload, &items[i]); err != nil {
			return nil, badRequest("item %d: %v", i, err)
		}
	}

	acks, err = q.pushFrames(ctx, len(items), payload)
	for i := range acks {
		acks[i].Priority = items[i].Priority
	}
	return acks, err
}

// appendFrame appends the frame of an item.
func (q *handle) appendFrame(b []byte, item *PushItem) ([]byte, error) {
	h := item.Headers
	if _, given := h[subjects.HeaderPriority]; given && q.kind == subjects.Priority {
		h = maps.Clone(h) // the priority is that of the item, as for PushMsg
		delete(h, subjects.HeaderPriority)
	}

	headers, err := subjects.AppendHeaders(nil, h)
	if err != nil {
		return b, err
	}
	return subjects.AppendFrame(b, subjects.Frame{Priority: item.Priority, Headers: headers, Value: item.Value}), nil
}

// pushFrames pushes n items, whose frames are the payload. The acknowledgements have no priorities.
func (q *handle) pushFrames(ctx context.Context, n int, payload []byte) ([]PushAck, error) {
	reply, err := q.request(ctx, q.pushBatchVerb(), nil, payload)
	if err != nil {
		return nil, err
	}

	pushed, err := subjects.ParsePushedBatch(reply.Data)
	if err != nil || len(pushed.IDs) != n {
		return nil, badReply(fmt.Errorf("%.64q", reply.Data))
	}
	acks := make([]PushAck, n)
	for i, id := range pushed.IDs {
		acks[i] = PushAck{Queue: q.name, ID: id}
	}
	for _, i := range pushed.Duplicates {
		if i >= 0 && i < n {
			acks[i].Duplicate = true
		}
	}
	return acks, nil
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
