package bridge

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodePush takes ownership of the message: op refers to its memory. Errors wrap
// ErrBadRequest or subjects.ErrPriority.
func decodePush(m *nats.Msg, r *subjects.Request, op *fdbpq.Op) error {
	op.Priority = r.Priority
	op.Message.Value = m.Data
	if len(m.Header) == 0 {
		return nil
	}

	if err := checkNames(m.Header, r); err != nil {
		return err
	}
	if err := checkPushed(m, r.Queue); err != nil {
		return err
	}

	// What is left in the header in the end comes back with the item.
	if err := takeTimes(m.Header, op); err != nil {
		return err
	}
	if err := takeKeys(m.Header, &op.Message); err != nil {
		return err
	}
	if priorities, given := m.Header[subjects.HeaderPriority]; given {
		var err error
		if op.Priority, err = priority(r, priorities); err != nil {
			return err
		}
		delete(m.Header, subjects.HeaderPriority)
	}
	if len(m.Header) > 0 {
		op.Message.Headers = m.Header
	}
	return nil
}

// checkNames refuses headers that no request may have, or that this one may not.
func checkNames(h nats.Header, r *subjects.Request) error {
	for name := range h {
		if !subjects.RequestHeaderKnown(name) {
			return fmt.Errorf("%w: unknown header %.64q: of the names that begin with Pq- only these are known, spelled like this: %s",
				ErrBadRequest, name, strings.Join(subjects.PushHeaders[:], ", "))
		}
		if subjects.IsReserved(name) && name != subjects.HeaderPriority && r.Verb != subjects.Push && r.Verb != subjects.Enqueue {
			return fmt.Errorf("%w: header %s with %s: only a push has one", ErrBadRequest, name, r.Verb)
		}
		if name == subjects.HeaderPriority && r.Verb != subjects.Push {
			return fmt.Errorf("%w: header %s with %s: only a push to a priority queue has one",
				ErrBadRequest, subjects.HeaderPriority, r.Verb)
		}
	}
	return nil
}

// checkPushed refuses headers that would make the reply to a later pop look like
// something other than an item, that a NATS server would act on in that reply, or that
// NATS cannot carry. It removes those that are not stored.
func checkPushed(m *nats.Msg, queue string) error {
	for name, values := range m.Header {
		if len(name) >= len(subjects.HeaderError) && strings.EqualFold(name[:len(subjects.HeaderError)], subjects.HeaderError) {
			return fmt.Errorf("%w: header %.64q: whoever pops the item would take it for an error", ErrBadRequest, name)
		}
		if !subjects.ValidHeaderName(name) {
			return fmt.Errorf("%w: header %.64q: want a name of letters, digits and any of !#$%%&'*+-.^_`|~", ErrBadRequest, name)
		}

		switch subjects.HeaderFate(name, values) {
		case subjects.Refused:
			return fmt.Errorf("%w: header %.64q: %s", ErrBadRequest, name, subjects.WhyRefused(name))
		case subjects.Checked:
			for _, value := range values {
				if value != queue {
					return fmt.Errorf("%w: header %.64q: the stream %.128q is expected, and the queue is %s: want that name",
						ErrBadRequest, name, value, queue)
				}
			}
			delete(m.Header, name)
		case subjects.Dropped:
			delete(m.Header, name)
		}
	}

	// NATS trims the spaces around the value on the way back.
	if len(m.Data) == 0 && textproto.TrimString(m.Header.Get("Status")) == "503" {
		return fmt.Errorf("%w: header Status 503 without a payload: whoever pops the item would take it for \"no responders\"", ErrBadRequest)
	}
	return nil
}

// checkBlock refuses too many headers, and those that a NATS server may have parsed differently
// from the NATS client, which would hide a header from one of them: lines that end in LF alone,
// lines without a name, spaces before a value, a status.
//
// The client does not expose the raw block, only its size. The size must be that of
// lines "name: value" that end in CR LF, or smaller by the spaces after the colons if
// the sender writes none. This is not exact, because other blocks can add up to the
// same size. That is harmless: only what the client parsed is stored and sent on.
func checkBlock(h nats.Header, size int) error {
	if h == nil {
		if size > 0 {
			return fmt.Errorf("%w: the headers cannot be read: want a line \"name: value\" for each", ErrBadRequest)
		}
		return nil
	}

	lines, added := 0, 0
	for _, values := range h {
		lines += len(values)
	}
	if lines > subjects.MaxHeaders {
		return errTooManyHeaders(lines)
	}

	for name, values := range h {
		if subjects.AddedByServer(name) { // which has its own style
			added += len(values)
		}
		for _, value := range values {
			if strings.IndexByte(value, '\r') >= 0 {
				return fmt.Errorf("%w: header %.64q: its value has a CR in it", ErrBadRequest, name)
			}
		}
	}

	missing := len(wire.BlockStart) + wire.LinesSize(h) + len(wire.CRLF) - size
	if withSpaces := 0 <= missing && missing <= added; withSpaces {
		return nil
	}
	if without := lines-added <= missing && missing <= lines; without {
		return nil
	}
	return fmt.Errorf("%w: the headers can be read in more than one way: want lines \"name: value\" or lines \"name:value\" that end in CR LF, and no status",
		ErrBadRequest)
}

func errTooManyHeaders(n int) error {
	return fmt.Errorf("%w: %d header lines: want at most %d", ErrTooLarge, n, subjects.MaxHeaders)
}

// priority returns the priority from the header and the subject, which must agree.
func priority(r *subjects.Request, texts []string) (int64, error) {
	value, have := r.Priority, r.HasPriority
	for _, text := range texts {
		p, err := subjects.ParsePriority(text)
		if err != nil {
			return 0, fmt.Errorf("header %s: %w", subjects.HeaderPriority, err)
		}
		if have && p != value {
			return 0, fmt.Errorf("%w: given twice and different, %d and %d: want one", subjects.ErrPriority, value, p)
		}
		value, have = p, true
	}
	return value, nil
}
