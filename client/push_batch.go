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
// do not fit into a message of NATS, a transaction or the limits of the queue, the error is
// ErrTooLarge and its text has the limit.
//
// Errors: [ErrBadRequest], whose text has the index of the item, [ErrTooLarge], [ErrOverloaded] if
// the queue is full, and the errors of any request.
func (q *Queue) PushBatch(ctx context.Context, items []PushItem) ([]PushAck, error) {
	if len(items) > subjects.MaxFrames { // the bridge would refuse them too, once it has them all
		return nil, tooLarge("a batch of %d items: want at most %d", len(items), subjects.MaxFrames)
	}

	frames, err := q.frames(items)
	if err != nil {
		return nil, badRequest("item %d: %v", len(frames), err)
	}
	return q.pushFrames(ctx, frames)
}

// frames returns the frames of items, up to the first that cannot be pushed.
func (q *Queue) frames(items []PushItem) (frames []subjects.Frame, err error) {
	frames = make([]subjects.Frame, 0, len(items))
	for i := range items {
		f, err := q.frame(&items[i])
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

// frame returns the frame of an item, which shares the memory of its value.
func (q *Queue) frame(item *PushItem) (subjects.Frame, error) {
	if err := q.checkPriority(item.Priority); err != nil {
		return subjects.Frame{}, err
	}

	h := item.Headers
	if _, given := h[subjects.HeaderPriority]; given {
		h = maps.Clone(h) // item.Priority counts instead, as for PushMsg
		delete(h, subjects.HeaderPriority)
	}

	headers, err := subjects.AppendHeaders(nil, h)
	return subjects.Frame{Priority: item.Priority, Headers: headers, Value: item.Value}, err
}

// pushFrames pushes a batch.
func (q *Queue) pushFrames(ctx context.Context, frames []subjects.Frame) ([]PushAck, error) {
	var payload []byte
	for _, f := range frames {
		payload = subjects.AppendFrame(payload, f)
	}

	reply, err := q.request(ctx, subjects.PushBatch, nil, payload)
	if err != nil {
		return nil, err
	}

	pushed, err := subjects.ParsePushedBatch(reply.Data)
	if err != nil || len(pushed.IDs) != len(frames) {
		return nil, badReply(fmt.Errorf("%.64q", reply.Data))
	}

	acks := make([]PushAck, len(frames))
	for i, id := range pushed.IDs {
		acks[i] = PushAck{Queue: q.name, ID: id, Priority: frames[i].Priority}
	}

	for _, i := range pushed.Duplicates {
		if i >= 0 && i < len(acks) {
			acks[i].Duplicate = true
		}
	}
	return acks, nil
}

// maxBatchBytes bounds a batch of PushMany and Producer: larger ones are no faster, and a bridge
// has to hold them.
const maxBatchBytes = 4 << 20

// maxBatchItems is the most items of a batch whose reply, with all ids, fits into a message.
func maxBatchItems(maxPayload int64) int {
	const each, rest = 59, 512 // bytes in the reply, if all items are duplicates
	return min(max(1, int((maxPayload-rest)/each)), subjects.MaxFrames)
}

// fitting returns how many of the frames go into one batch, at least one.
func (c connection) fitting(frames []subjects.Frame) int {
	most := int(min(c.maxPayload(), maxBatchBytes))
	n := min(len(frames), maxBatchItems(c.maxPayload()))

	bytes := 0
	for i, f := range frames[:n] {
		if bytes += f.Size(); bytes > most {
			return max(1, i)
		}
	}
	return n
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
// the batch that failed, then items with [ErrNotSent]. After [ErrUnknownOutcome], either all items
// of the batch are in the queue, or none. To go on, call PushMany with the items that are not in
// the queue. Items of unknown outcome may be among them if they have a [MsgID] (see
// [Message.With]), within the duplicate window of the queue. The result of a duplicate has the ID
// of the item that was pushed before, and the priority of this push.
//
// PushMany does not retry. But it splits a batch that the bridge refuses as too large or because of
// a bad item, so that such an item fails alone. The text of the error has its index.
//
// The error says why the batch failed: see [Queue.PushBatch]. The context bounds the whole call. If
// it has no deadline, the timeout of the client bounds each batch.
func (q *Queue) PushMany(ctx context.Context, items []PushItem) ([]PushResult, error) {
	results := make([]PushResult, len(items))
	frames, wrong := q.frames(items)

	i, limit := 0, len(items)
	for i < len(frames) {
		n := q.client.fitting(frames[i:min(i+limit, len(frames))])
		acks, err := q.pushFrames(ctx, frames[i:i+n])
		switch {
		case err == nil:
			for _, ack := range acks {
				results[i].PushAck = ack
				i++
			}
		case isRefused(err) && n > 1: // nothing was pushed: look for the item at fault
			limit = n / 2
		default:
			return results, failFrom(results, i, n, err)
		}
	}

	if wrong != nil {
		return results, failFrom(results, i, 1, badRequest("%v", wrong))
	}
	return results, nil
}

// failFrom sets the errors of n items from i on, whose batch has failed, and of those after them,
// which were not sent. It returns the error of the whole call.
func failFrom(results []PushResult, i, n int, err error) error {
	err = nameItem(err, i, i+n)
	for k := range results[i : i+n] {
		results[i+k].Err = err
	}

	// The rest does not wrap err, which is about the items before it.
	notSent := fmt.Errorf("%w because of an earlier item: %v", ErrNotSent, err)
	for k := range results[i+n:] {
		results[i+n+k].Err = notSent
	}
	return fmt.Errorf("%d of %d items are in the queue: %w", i, len(results), err)
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
