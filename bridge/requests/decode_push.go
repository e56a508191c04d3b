package requests

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodePush takes ownership of the message: op refers to its memory. Errors wrap
// errBadRequest, subjects.ErrPriority, ErrKey, ErrTiming, ErrGroup, ErrWeight, ErrJoin or
// ErrQueueName, or fdbpq.ErrID. joiner is the number of the frame that has the joiner of the item,
// or noFrame.
func decodePush(m *nats.Msg, r *subjects.Request, op *fdbpq.Op) (joiner int, err error) {
	joiner = noFrame
	op.Priority = r.Priority
	op.Message.Value = m.Data
	if len(m.Header) == 0 {
		return joiner, nil
	}

	if err = checkPushed(m, r.Queue); err != nil {
		return joiner, err
	}

	// These headers are taken out. The others come back with the item.
	if joiner, err = takeJoin(m.Header, op); err != nil {
		return joiner, err
	}

	if err = takeTimes(m.Header, op); err != nil {
		return joiner, err
	}

	if op.Message.MsgID, op.Message.Unique, err = subjects.KeysOfPush(m.Header); err != nil {
		return joiner, err
	}

	if op.Weight, err = subjects.GroupOfPush(m.Header); err != nil {
		return joiner, err
	}

	delete(m.Header, subjects.HeaderMsgID)
	delete(m.Header, subjects.HeaderUnique)
	delete(m.Header, subjects.HeaderWeight)
	given, err := single(m.Header, subjects.HeaderPriority, subjects.ParsePriority, &op.Priority)
	switch {
	case err != nil:
		return joiner, err
	case given != "" && r.HasPriority && op.Priority != r.Priority:
		return joiner, fmt.Errorf("%w: given twice and different, %d and %d: want one",
			subjects.ErrPriority, r.Priority, op.Priority)
	}

	delete(m.Header, given)

	if len(m.Header) > 0 {
		op.Message.Headers = m.Header
	}

	return joiner, nil
}

// decodeOne reads a push of a single item.
func (q *request) decodeOne(m *nats.Msg) error {
	joiner, err := decodePush(m, &q.parsed, &q.ops[0])
	if err == nil && joiner != noFrame {
		err = badRequest("header %s: %d: a push of one item has no frames: want a queue, a space "+
			"and the id of a job there", subjects.HeaderJoiner, joiner)
	}
	return err
}

// checkPushed refuses headers that would do harm in the reply to a later pop: the reply would not
// look like an item, a NATS server would act on it, or NATS could not carry it. It removes headers
// that are not stored.
func checkPushed(m *nats.Msg, queue string) error {
	const prefix = len(subjects.HeaderError)
	for name, values := range m.Header {
		if len(name) >= prefix && strings.EqualFold(name[:prefix], subjects.HeaderError) {
			return badRequest("header %.64q: clients that pop the item would take it "+
				"for an error: leave it out", name)
		}

		if !subjects.ValidHeaderName(name) {
			return badRequest("header %.64q: want a name of letters, digits and any of %s",
				name, subjects.HeaderPunctuation)
		}

		switch subjects.HeaderFate(name, values) {
		case subjects.Refused:
			return badRequest("header %.64q: %s", name, subjects.WhyRefused(name))
		case subjects.Checked: // Nats-Expected-Stream: the queue is its stream
			for _, value := range values {
				if value != queue {
					return badRequest("header %.64q: the stream %.128q is expected, and the queue "+
						"is %s: want that name", name, value, queue)
				}
			}
			delete(m.Header, name)
		case subjects.Dropped:
			delete(m.Header, name)
		}
	}

	if subjects.IsStatus(m.Header, m.Data) {
		return badRequest("header %s without a value: %s",
			subjects.HeaderStatus, subjects.WhyNoStatus)
	}

	return nil
}

// takeTimes reads the times of a push from its headers, and takes them out, except for the expiry.
// Errors wrap errBadRequest or subjects.ErrTiming.
func takeTimes(h nats.Header, op *fdbpq.Op) error {
	delay, err := single(h, subjects.HeaderDelay, subjects.ParseDelay, &op.Delay)
	if err != nil {
		return err
	}
	schedule, err := single(h, subjects.HeaderSchedule, parseScheduled, &op.At)
	if err != nil {
		return err
	}
	switch {
	case delay != "" && schedule != "":
		return badRequest("headers %s and %s: want one of them",
			subjects.HeaderDelay, subjects.HeaderSchedule)
	case delay != "" && op.Message.Join > 0:
		return badRequest("headers %s and %s: want one of them, a joiner waits for its members",
			subjects.HeaderDelay, subjects.HeaderJoin)
	}
	keep, err := single(h, subjects.HeaderKeep, subjects.ParseKeep, &op.Message.Keep)
	if err != nil {
		return err
	}
	delete(h, delay)
	delete(h, schedule)
	delete(h, keep) // it comes back as a property

	// The expiry comes back with the item.
	ttl, err := single(h, subjects.HeaderTTL, subjects.ParseTTL, &op.TTL)
	if ttl != "" && op.TTL == 0 {
		op.TTL = fdbpq.Never
	}
	return err
}

func parseScheduled(text string) (time.Time, error) {
	return subjects.ParseSchedule(text, time.Now())
}

// decodeFrames makes an operation like the first for each push of a batch. They refer to the memory
// of the message, and follow each other, so all of them succeed or none does. Errors come from
// decodePush or subjects.ParseFrames.
func (q *request) decodeFrames(m *nats.Msg) error {
	if err := checkBatchHeaders(m.Header); err != nil {
		return err
	}

	frames, err := subjects.ParseFrames(m.Data)
	if err != nil {
		return err
	}

	kind := q.parsed.Kind
	single := subjects.Request{Kind: kind, Verb: subjects.Push, Queue: q.parsed.Queue}
	single.HasPriority = kind == subjects.Priority

	first, lines := q.ops[0], 0
	q.ops = slices.Grow(q.ops, len(frames)-1)[:len(frames)]
	for i, frame := range frames {
		q.ops[i] = first
		q.ops[i].Follows = i > 0
		single.Priority = frame.Priority
		joiner, err := decodeFrame(&frame, &single, &q.ops[i])
		if err == nil && joiner != noFrame {
			err = joinFrame(q.ops[:i+1], joiner)
		}
		if err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
		if lines += headerLines(&frame); lines > subjects.MaxBatchHeaders {
			return fmt.Errorf("%w: more than %d header lines in all: send fewer items at once",
				errTooLarge, subjects.MaxBatchHeaders)
		}
	}

	return nil
}

// decodeFrame reads one item of a batch, with the checks of a single push. It returns what
// decodePush does.
func decodeFrame(frame *subjects.Frame, r *subjects.Request, op *fdbpq.Op) (joiner int, err error) {
	if err := checkFramePriority(frame, r); err != nil {
		return noFrame, err
	}

	m := nats.Msg{Data: frame.Value}
	if n := headerLines(frame); n > subjects.MaxHeaders {
		return noFrame, errTooManyHeaders(n)
	}

	if len(frame.Headers) > 0 {
		m.Header, _ = nats.DecodeHeadersMsg(frame.Headers) // nil if they cannot be read
		if err := checkBlock(m.Header, len(frame.Headers)); err != nil {
			return noFrame, err
		}
		if err := checkNames(m.Header, r); err != nil {
			return noFrame, err
		}
	}

	return decodePush(&m, r, op)
}

// checkFramePriority refuses the priorities that a FIFO queue cannot have.
func checkFramePriority(frame *subjects.Frame, r *subjects.Request) error {
	if !r.HasPriority && frame.Priority != 0 {
		return fmt.Errorf("%w: %d in a FIFO queue: want 0", subjects.ErrPriority, frame.Priority)
	}
	return nil
}

// headerLines returns how many headers a frame has. The first and the last line have none.
func headerLines(frame *subjects.Frame) int {
	return max(bytes.Count(frame.Headers, []byte("\n"))-2, 0)
}

// checkBatchHeaders refuses headers of a batch that could be meant for its items. All others are
// for NATS.
func checkBatchHeaders(h nats.Header) error {
	for name, values := range h {
		if subjects.IsNATS(name) && subjects.HeaderFate(name, values) != subjects.Dropped {
			return badRequest("header %.64q: a batch has none that begin with Nats-: give them to "+
				"the items in it", name)
		}
	}
	return nil
}
