package requests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// decodeAck reads an acknowledgement. It takes ownership of the payload: a result is in its memory.
func (q *request) decodeAck(m *nats.Msg) error {
	h := m.Header
	if err := checkStatus(h); err != nil {
		return err
	}

	token, err := fdbpq.ParseToken(q.parsed.Token)
	if err != nil {
		return err
	}

	a, inHeader, err := parseAck(h, m.Data)
	if err != nil {
		return err
	}

	q.ops = slices.Grow(q.ops, len(a.Also))
	ack := &q.ops[0]
	ack.Token = token
	wire.SetAck(ack, &a)

	for i, text := range a.Also {
		also, err := fdbpq.ParseToken(text)
		if err != nil {
			return fmt.Errorf("also: element %d: %w", i, err)
		}
		q.ops = append(q.ops, fdbpq.Op{Kind: fdbpq.OpAck, Token: also, Follows: true})
	}

	if inHeader && a.Kind == subjects.AckProgress {
		ack.Report = &fdbpq.Report{Progress: m.Data}
	}

	if inHeader && ack.Kind == fdbpq.OpAck {
		f := ackFrames{q: q, tokens: append([]string{q.parsed.Token}, a.Also...)}
		if err := f.read(h, m.Data); err != nil {
			return err
		}
	}

	if a.Kind == subjects.AckNext && m.Reply != "" { // else nobody would receive the next item
		q.ops = append(q.ops, fdbpq.Op{Kind: fdbpq.OpLease, End: token.End, Follows: true})
		q.applyOptions(a.Next)
	}

	return nil
}

// ackHeaders returns the headers of an acknowledgement that say what it is, nil if the payload says
// that. Without them, another bridge would take a result for the acknowledgement.
func ackHeaders(h nats.Header) nats.Header {
	if h[subjects.HeaderAck] == nil {
		return nil
	}

	headers := maps.Clone(h)
	maps.DeleteFunc(headers, func(name string, _ []string) bool {
		return !slices.Contains(subjects.AckHeaders[:], name) &&
			!strings.EqualFold(name, subjects.HeaderContentType)
	})
	return headers
}

// parseAck reads an acknowledgement from its header, or else from the payload. Errors wrap
// errBadRequest or subjects.ErrOptions.
func parseAck(h nats.Header, payload []byte) (a subjects.Ack, inHeader bool, err error) {
	values, inHeader := h[subjects.HeaderAck]
	switch {
	case !inHeader && h[subjects.HeaderFrames] != nil:
		return a, false, badRequest("header %s without %s: only a payload with results has frames",
			subjects.HeaderFrames, subjects.HeaderAck)
	case !inHeader:
		a, err = subjects.ParseAck(payload)
		return a, false, err
	case len(values) != 1:
		return a, true, badRequest("header %s given %d times: want it once", subjects.HeaderAck,
			len(values))
	case values[0] == "":
		return a, true, badRequest("header %s without a value: want +ACK, -NAK, +WPI, +NXT or "+
			"+TERM", subjects.HeaderAck)
	}

	if a, err = subjects.ParseAck([]byte(values[0])); err != nil {
		return a, true, fmt.Errorf("header %s: %w", subjects.HeaderAck, err)
	}

	switch takes := a.Kind == subjects.AckDone || a.Kind == subjects.AckNext; {
	case !takes && h[subjects.HeaderFrames] != nil:
		err = badRequest("header %s with %s: %.16q: only +ACK and +NXT have results",
			subjects.HeaderFrames, subjects.HeaderAck, values[0])
	case a.Kind == subjects.AckProgress && len(payload) > settings.MaxProgress:
		err = badRequest("header %s: +WPI with a progress of %d bytes: want at most %d",
			subjects.HeaderAck, len(payload), settings.MaxProgress)
	case !takes && a.Kind != subjects.AckProgress && len(payload) > 0:
		err = badRequest("header %s: %.16q with a payload of %d bytes: only +ACK and +NXT have a "+
			"result: want none", subjects.HeaderAck, values[0], len(payload))
	}
	return a, true, err
}
