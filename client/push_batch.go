package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushItem is one item of a batch of pushes.
type PushItem struct {
	Priority int64
	Message
}

// PushBatch adds 1 to 4,096 items in one transaction. Once all are durable, it returns their
// acknowledgements in the same order. After an error none of them is in the queue, unless it is
// [ErrUnknownOutcome]: then either all of them are, or none.
//
// An item with [MsgID] or [Unique] (see [Message.With]) may be a duplicate: see [PushAck]. Its
// acknowledgement has the priority of this push.
//
// Items of one priority are served in the order of the slice. A batch is never split: if its items
// do not fit into a message of NATS or a transaction, the error is ErrTooLarge and its text has the
// limit.
//
// Errors: [ErrBadRequest], whose text has the index of the item, [ErrTooLarge], [ErrOverloaded] if
// the queue is full, and those that every call can return.
func (q *PriorityQueue) PushBatch(ctx context.Context, items []PushItem) ([]PushAck, error) {
	return q.pushBatch(ctx, items)
}

// EnqueueBatch adds 1 to 4,096 items at the end. See [PriorityQueue.PushBatch].
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
	if len(items) > subjects.MaxFrames { // the bridge would refuse them too, once it has them all
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
		h = maps.Clone(h) // item.Priority counts instead, as for PushMsg
		delete(h, subjects.HeaderPriority)
	}

	headers, err := subjects.AppendHeaders(nil, h)
	if err != nil {
		return b, err
	}

	frame := subjects.Frame{Priority: item.Priority, Headers: headers, Value: item.Value}
	return subjects.AppendFrame(b, frame), nil
}

// pushFrames pushes n items whose frames are the payload. It does not set the priorities of the
// acknowledgements.
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

// maxBatchBytes is the most bytes of a batch of PushMany and Producer.
func maxBatchBytes(maxPayload int64) int {
	const most = 4 << 20 // larger batches are no faster, and a bridge has to hold them
	return int(min(maxPayload, most))
}

// maxBatchItems is the most items of a batch whose reply, with all ids, fits into a message.
func maxBatchItems(maxPayload int64) int {
	const each, rest = 54, 512 // bytes in the reply
	return max(1, int((maxPayload-rest)/each))
}

// PushResult says what became of one item of several.
type PushResult struct {
	// PushAck is the acknowledgement if Err is nil.
	PushAck
	// Err is nil if the item is durable. If it wraps [ErrUnknownOutcome], the item may or may not
	// be in the queue. With any other error it is not.
	Err error
}

// PushMany adds any number of items. It sends as few batches as the limits of NATS and of the
// bridge allow, one after the other, and returns once all items are durable or a batch has failed.
// Items of one priority are served in the order of the slice.
//
// There is a result for each item, in the same order: first the items that are in the queue, then
// those of the batch that failed, then those with [ErrNotSent]. After [ErrUnknownOutcome], either
// all items of the batch are in the queue, or none. To go on, call PushMany with the items that are
// not in the queue. Items of unknown outcome may be among them if they have a [MsgID] (see
// [Message.With]), within the duplicate window of the queue. The result of a duplicate has the ID
// of the item that was pushed before, and the priority of this push.
//
// PushMany does not retry. But it splits a batch that the bridge refuses as too large or because of
// a bad item, so that such an item fails alone. The text of the error has its index.
//
// The error is that of the batch that failed: see [PriorityQueue.PushBatch]. The context bounds the
// whole call. If it has no deadline, the timeout of the client bounds each batch.
func (q *PriorityQueue) PushMany(ctx context.Context, items []PushItem) ([]PushResult, error) {
	return q.pushMany(ctx, items)
}

// EnqueueMany adds any number of items at the end. See [PriorityQueue.PushMany].
func (q *Queue) EnqueueMany(ctx context.Context, items []Message) ([]PushResult, error) {
	return q.pushMany(ctx, pushItems(items))
}

func (q *handle) pushMany(ctx context.Context, items []PushItem) ([]PushResult, error) {
	n := len(items)
	results := make([]PushResult, n)
	limit := subjects.MaxFrames
	for i := 0; i < n; {
		end, err := q.pushNext(ctx, results, i, items[:min(i+limit, n)])
		switch {
		case err == nil:
			i = end

		case isRefused(err) && end > i+1: // nothing was pushed: look for the item at fault
			limit = (end - i) / 2

		default:
			err = nameItem(err, i, end)
			for k := range results[i:end] {
				results[i+k].Err = err
			}
			// The rest does not wrap err, which is about the items before it.
			notSent := fmt.Errorf("%w because of an earlier item: %v", ErrNotSent, err)
			for k := range results[end:] {
				results[end+k].Err = notSent
			}
			return results, fmt.Errorf("of %d items %d are in the queue: %w", n, i, err)
		}
	}
	return results, nil
}

// pushNext pushes the items from i on that fit into one batch, and returns the end of the batch.
func (q *handle) pushNext(ctx context.Context, results []PushResult, i int,
	items []PushItem) (end int, err error) {
	maxPayload := q.client.maxPayload()
	maxBytes := maxBatchBytes(maxPayload)
	limit := min(len(items), i+maxBatchItems(maxPayload))

	var payload []byte
	for end = i; end < limit; end++ {
		longer, err := q.appendFrame(payload, &items[end])
		if err != nil && end == i {
			return end + 1, badRequest("%v", err)
		}
		if err != nil || len(longer) > maxBytes && end > i { // the items before this one go first
			break
		}
		payload = longer
	}

	acks, err := q.pushFrames(ctx, end-i, payload)
	for k, ack := range acks {
		ack.Priority = items[i+k].Priority
		results[i+k].PushAck = ack
	}
	return end, err
}

// nameItem returns the error of the items from i to end. If there is only one, the text has its
// index.
func nameItem(err error, i, end int) error {
	var e *Error
	if end != i+1 || !isRefused(err) || !errors.As(err, &e) {
		return err
	}

	named := *e
	named.Text = fmt.Sprintf("item %d: %s", i, strings.TrimPrefix(e.Text, "item 0: "))
	return &named
}
