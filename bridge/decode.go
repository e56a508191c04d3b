package bridge

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decode completes a request, its replier and its operations, the first of which has its kind and
// end, from a message whose subject was parsed. It may append operations. Errors wrap
// ErrBadRequest, or are those of package subjects and of fdbpq.ParseToken.
//
// It is a switch and no function in the table of verbs, so that its arguments stay on the
// stack.
func decode(p payload, m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	if p == payloadMessage {
		return ops, decodePush(m, r, &ops[0])
	}
	if err := checkNames(m.Header, r); err != nil {
		return nil, err
	}
	if p == payloadFrames {
		return decodeFrames(m, r, &ops[0])
	}
	if p == payloadAck {
		if err := checkStatus(m.Header); err != nil {
			return nil, err
		}
	}
	// The headers were for NATS. Forwarded to another bridge they would act once more,
	// with the permissions of this one.
	m.Header = nil
	switch p {
	case payloadOptions:
		return decodePop(m, c, request, ops)
	case payloadAck:
		return decodeAck(m, r, c, request, ops)
	case payloadSettings:
		return ops, decodeSettings(m, &ops[0])
	case payloadList:
		return ops, nil
	case payloadItem:
		return ops, decodeItem(m, r, &ops[0])
	case payloadPurge:
		return ops, decodePurge(m, &ops[0])
	case payloadRedrive:
		most, err := subjects.ParseRedrive(m.Data)
		ops[0].Limit, ops[0].DropHeader = int64(most), subjects.OfPushAlone
		return ops, err
	}
	if len(m.Data) > 0 {
		return nil, fmt.Errorf("%w: %s with a payload of %d bytes: want none", ErrBadRequest, r.Verb, len(m.Data))
	}
	if p == payloadInfo {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpSettings})
	}
	return ops, nil
}

// decodePop reads the options of a pop. If it returns no operations, the request cancels the one
// whose Wait has this ID.
func decodePop(m *nats.Msg, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	if len(m.Data) == 0 {
		return ops, nil
	}
	o, err := subjects.ParsePopOptions(m.Data)
	if err != nil {
		return nil, err
	}
	if o.Cancel != "" {
		request.Wait = &dispatch.Wait{ID: o.Cancel}
		return nil, nil
	}
	if o.Lease {
		ops[0].Kind = fdbpq.OpLease
	}
	applyOptions(c, request, &ops[0], o)
	return ops, nil
}

// applyOptions gives the request and its last operation, a pop or lease, the options.
func applyOptions(c *clientReplier, r *dispatch.Request, last *fdbpq.Op, o subjects.PopOptions) {
	if o.Expires > 0 {
		r.Wait = &dispatch.Wait{Until: r.Received.Add(o.Expires), Heartbeat: o.IdleHeartbeat, OnlyIfEmpty: o.NoWait, ID: o.ID}
	}
	if o.Batch > 1 {
		c.batch, r.Pops = o.Batch, o.Batch
	}
	// One plain item needs no frame. Clients of other accounts may know no subject for
	// acknowledgements but reply subjects.
	plain, far := last.Kind == fdbpq.OpPop, wire.Imported(c.reply)
	c.frames = o.Frames && (plain && o.Batch > 1 || !plain && !far)
	last.Lease, last.MaxBytes = o.AckWait, o.MaxBytes
	if o.Lease && o.AckWait == 0 {
		last.Lease = fdbpq.SettingsLease // also after +NXT, whose lease would have the length of the one before
	}
}

// decodeAck reads an acknowledgement.
func decodeAck(m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
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
	if ops, err = appendAlso(ops, a.Also); err != nil {
		return nil, err
	}
	switch a.Kind {
	case subjects.AckNak:
		op.Kind, op.Delay, op.Uncounted, op.Reason = fdbpq.OpNak, fdbpq.Backoff, a.Snooze, a.Reason
		if a.HasDelay {
			op.Delay = a.Delay
		}
	case subjects.AckTerm:
		op.Kind, op.Reason = fdbpq.OpTerm, a.Reason
	case subjects.AckProgress:
		op.Kind = fdbpq.OpExtend
	case subjects.AckNext:
		if m.Reply == "" {
			break // nobody would receive the next
		}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, End: token.End, Follows: true})
		applyOptions(c, request, &ops[len(ops)-1], a.Next)
	}
	return ops, nil
}

// appendAlso appends acknowledgements of further leases to that of the first.
func appendAlso(ops []fdbpq.Op, also []string) ([]fdbpq.Op, error) {
	if len(also) == 0 {
		return ops, nil
	}
	numbers := map[fdbpq.Token]int{ops[0].Token: -1} // of the elements
	for i, text := range also {
		token, err := fdbpq.ParseToken(text)
		if err != nil {
			return nil, fmt.Errorf("also: element %d: %w", i, err)
		}
		if other, again := numbers[token]; again && other < 0 {
			return nil, fmt.Errorf("%w: also: element %d is the token of the subject: want other leases", ErrBadRequest, i)
		} else if again {
			return nil, fmt.Errorf("%w: also: elements %d and %d are the same token: want each lease once", ErrBadRequest, other, i)
		}
		numbers[token] = i
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Token: token, Follows: true})
	}
	return ops, nil
}

// decodeSettings reads a change of settings.
func decodeSettings(m *nats.Msg, op *fdbpq.Op) error {
	if len(m.Data) == 0 {
		return nil
	}
	change, err := subjects.ParseChange(m.Data)
	if err != nil {
		return err
	}

	op.Kind, op.Configure = fdbpq.OpConfigure, change.Apply
	return nil
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
	if err := checkPushed(m, r.Queue); err != nil {
		return err
	}
	if err := takeTimes(m.Header, op); err != nil {
		return err
	}
	if err := takeKeys(m.Header, &op.Message); err != nil {
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

// checkStatus refuses what NATS itself sends, such as "no responders": it does not say that
// an item is done.
func checkStatus(h nats.Header) error {
	for name := range h {
		if strings.EqualFold(name, "Status") {
			return fmt.Errorf("%w: header %s: NATS sends messages with a status, and they acknowledge nothing", ErrBadRequest, name)
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

// checkBlock refuses too many headers, and those that a NATS server may have parsed differently from the
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
