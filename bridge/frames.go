package bridge

import (
	"bytes"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeFrames returns the operations of a batch of pushes, which are like first. They refer
// to the memory of the message, and follow each other, so all of them succeed or none does.
// Errors are those of decodePush and of subjects.ParseFrames.
func decodeFrames(m *nats.Msg, r *subjects.Request, first *fdbpq.Op) ([]fdbpq.Op, error) {
	if err := checkBatchHeaders(m.Header); err != nil {
		return nil, err
	}
	frames, err := subjects.ParseFrames(m.Data)
	if err != nil {
		return nil, err
	}

	single := subjects.Request{Kind: r.Kind, Verb: subjects.Enqueue, Queue: r.Queue}
	if r.Kind == subjects.Priority {
		single.Verb, single.HasPriority = subjects.Push, true
	}

	ops := make([]fdbpq.Op, frames.Len())
	for i, frame := range frames.All() {
		ops[i] = *first
		ops[i].Follows = i > 0
		single.Priority = frame.Priority
		if err := decodeFrame(&frame, &single, &ops[i]); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return ops, nil
}

// decodeFrame reads one item of a batch as decode and the handler read a push of its own.
func decodeFrame(frame *subjects.Frame, r *subjects.Request, op *fdbpq.Op) error {
	if !r.HasPriority && frame.Priority != 0 {
		return fmt.Errorf("%w: %d in a FIFO queue: want 0", subjects.ErrPriority, frame.Priority)
	}

	m := nats.Msg{Data: frame.Value}
	if n := bytes.Count(frame.Headers, []byte("\n")) - 2; n > subjects.MaxHeaders { // but for the first and the last
		return errTooManyHeaders(n)
	}
	if len(frame.Headers) > 0 {
		m.Header, _ = nats.DecodeHeadersMsg(frame.Headers) // nil if they cannot be read
		if err := checkBlock(m.Header, len(frame.Headers)); err != nil {
			return err
		}
	}

	return decodePush(&m, r, op)
}

// checkBatchHeaders refuses headers of a batch that could be meant for its items. Those
// that remain are for NATS.
func checkBatchHeaders(h nats.Header) error {
	for name, values := range h {
		if subjects.IsNATS(name) && subjects.HeaderFate(name, values) != subjects.Dropped {
			return fmt.Errorf("%w: header %.64q: a batch has none that begin with Nats-: give them to the items in it", ErrBadRequest, name)
		}
	}
	return nil
}
