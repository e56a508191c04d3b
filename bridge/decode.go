package bridge

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decode completes the operations of a request, whose first has its kind and end, from a
// message whose subject was parsed. It may append operations. Errors wrap ErrBadRequest, or
// are those of package subjects and of fdbpq.ParseToken.
//
// It is a switch and no function in the table of verbs, so that its arguments stay on the
// stack.
func decode(p payload, m *nats.Msg, r *subjects.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	if p == payloadMessage {
		return ops, decodePush(m, r, &ops[0])
	}
	if err := checkNames(m.Header, r); err != nil {
		return nil, err
	}
	// The headers were for NATS. Forwarded to another bridge they would act once more,
	// with the permissions of this one.
	m.Header = nil
	switch p {
	case payloadOptions:
		return decodePop(m, ops)
	case payloadAck:
		return decodeAck(m, r, ops)
	}
	if len(m.Data) > 0 {
		return nil, fmt.Errorf("%w: %s with a payload of %d bytes: want none", ErrBadRequest, r.Verb, len(m.Data))
	}
	return ops, nil
}

// decodePop reads the options of a pop.
func decodePop(m *nats.Msg, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	if len(m.Data) == 0 {
		return ops, nil
	}
	o, err := subjects.ParsePopOptions(m.Data)
	if err != nil {
		return nil, err
	}
	if o.Lease {
		ops[0].Kind = fdbpq.OpLease
	}
	return popMany(ops, o), nil
}

// popMany gives the last operation, a pop or lease, the options, and appends as many as the
// batch needs.
func popMany(ops []fdbpq.Op, o subjects.PopOptions) []fdbpq.Op {
	last := &ops[len(ops)-1]
	last.Lease, last.MaxBytes = o.AckWait, o.MaxBytes
	next := *last
	next.Follows = true
	for range o.Batch - 1 {
		ops = append(ops, next)
	}
	return ops
}

// decodeAck reads an acknowledgement.
func decodeAck(m *nats.Msg, r *subjects.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	token, err := fdbpq.ParseToken(r.Token)
	if err != nil {
		return nil, err
	}
	a, err := subjects.ParseAck(m.Data)
	if err != nil {
		return nil, err
	}
	op := &ops[0]
	op.Token = token
	switch a.Kind {
	case subjects.AckNak:
		op.Kind, op.Delay, op.Uncounted = fdbpq.OpNak, a.Delay, a.Snooze
	case subjects.AckProgress:
		op.Kind = fdbpq.OpExtend
	case subjects.AckNext:
		if m.Reply == "" {
			break // nobody would receive the next
		}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, End: token.End, Follows: true})
		return popMany(ops, a.Next), nil
	}
	return ops, nil
}

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
	if err := checkPushed(m); err != nil {
		return err
	}
	priorities, given := m.Header[subjects.HeaderPriority]
	if given {
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
			return fmt.Errorf("%w: unknown header %.64q: of the names that begin with Pq- only %s is known, spelled like that",
				ErrBadRequest, name, subjects.HeaderPriority)
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
func checkPushed(m *nats.Msg) error {
	for name, values := range m.Header {
		if len(name) >= len(subjects.HeaderError) && strings.EqualFold(name[:len(subjects.HeaderError)], subjects.HeaderError) {
			return fmt.Errorf("%w: header %.64q: whoever pops the item would take it for an error", ErrBadRequest, name)
		}
		if !token(name) {
			return fmt.Errorf("%w: header %.64q: want a name of letters, digits and any of !#$%%&'*+-.^_`|~", ErrBadRequest, name)
		}
		switch subjects.HeaderFate(name, values) {
		case subjects.Refused:
			return fmt.Errorf("%w: header %.64q: NATS servers act on it, and would on the reply that returns the item: leave it out", ErrBadRequest, name)
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

// checkBlock refuses headers that a NATS server may have parsed differently from the
// NATS client, which would hide a header from one of them: lines that end in LF alone,
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
	for name, values := range h {
		lines += len(values)
		if subjects.AddedByServer(name) { // which has its own style
			added += len(values)
		}
		for _, value := range values {
			if strings.IndexByte(value, '\r') >= 0 {
				return fmt.Errorf("%w: header %.64q: its value has a CR in it", ErrBadRequest, name)
			}
		}
	}
	missing := len(blockStart) + sizeOfLines(h) + len(crlf) - size
	if withSpaces := 0 <= missing && missing <= added; withSpaces {
		return nil
	}
	if without := lines-added <= missing && missing <= lines; without {
		return nil
	}
	return fmt.Errorf("%w: the headers can be read in more than one way: want lines \"name: value\" or lines \"name:value\" that end in CR LF, and no status",
		ErrBadRequest)
}

// token reports whether NATS's Go client can send a header of that name.
func token(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return len(name) > 0
}

// headerSize returns the number of bytes that h takes in a message.
func headerSize(h map[string][]string) int {
	if len(h) == 0 {
		return 0
	}
	return len(blockStart) + sizeOfLines(h) + len(crlf)
}

const (
	blockStart = "NATS/1.0" + crlf
	crlf       = "\r\n"
)

func sizeOfLines(h map[string][]string) (n int) {
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(": ") + len(value) + len(crlf)
		}
	}
	return n
}

// headerMemory estimates the bytes that h takes in memory beyond those in a message.
func headerMemory(h map[string][]string) (n int) {
	const each = 64
	for _, values := range h {
		n += each + each/2*len(values)
	}
	return n
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
