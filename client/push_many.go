package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushResult says what became of one item of several.
type PushResult struct {
	// PushAck is the acknowledgement if Err is nil.
	PushAck
	// Err is nil if the item is in the queue, durably. If it is (errors.Is) [ErrUnknownOutcome], the
	// item may or may not be. Otherwise it is not.
	Err error
}

// PushMany adds any number of items, in as few batches as the limits of NATS and of the bridge
// allow, one after the other, and returns once all are durable or one has failed. Items of one
// priority are served in the order of the slice.
//
// There is a result for each item, in the same order: up to three stretches of items that are in
// the queue, that have failed (with [ErrUnknownOutcome] all or none of them are in the queue), and
// of [ErrNotSent]. To go on, call PushMany with those that are not in the queue. Those of unknown
// outcome can be among them if they have a [MsgID] (see Message.With), within the duplicate window
// of the queue. Of a duplicate, the result has the ID of the item that was pushed before, and the
// priority of this one.
//
// PushMany repeats nothing by itself, except that it splits batches that the bridge refuses as too
// large or because of a bad item. So such an item fails alone, and the text of the error has its
// index.
//
// The error is that of the batch that failed, one of those of PushBatch. The context bounds the whole
// call; if it has no deadline, the timeout of the client bounds each batch.
func (q *PriorityQueue) PushMany(ctx context.Context, items []PushItem) ([]PushResult, error) {
	return q.pushMany(ctx, items)
}

// EnqueueMany is PriorityQueue.PushMany.
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

		case isRefused(err) && end > i+1: // nothing was done
			limit = (end - i) / 2

		default:
			err = nameItem(err, i, end)
			for k := range results[i:end] {
				results[i+k].Err = err
			}
			for k := range results[end:] {
				results[end+k].Err = fmt.Errorf("%w because of an earlier item: %v", ErrNotSent, err) // which it is not
			}
			return results, fmt.Errorf("of %d items %d are in the queue: %w", n, i, err)
		}
	}
	return results, nil
}

// pushNext pushes the items from i on in one batch, those that fit into a message, and returns the
// end of the batch.
func (q *handle) pushNext(ctx context.Context, results []PushResult, i int, items []PushItem) (end int, err error) {
	maxPayload := q.client.maxPayload()
	maxBytes := maxBatchBytes(maxPayload)
	limit := min(len(items), i+maxBatchItems(maxPayload))

	var payload []byte
	for end = i; end < limit; end++ {
		longer, err := q.appendFrame(payload, &items[end])
		if err != nil && end == i {
			return end + 1, badRequest("%v", err)
		}
		if err != nil || len(longer) > maxBytes && end > i { // the items before it go first
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

// nameItem returns the error of items i to end. If it is of one item, the text has its index.
func nameItem(err error, i, end int) error {
	var e *Error
	if end != i+1 || !isRefused(err) || !errors.As(err, &e) {
		return err
	}

	named := *e
	named.Text = fmt.Sprintf("item %d: %s", i, strings.TrimPrefix(e.Text, "item 0: "))
	return &named
}
