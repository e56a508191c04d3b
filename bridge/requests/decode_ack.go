package requests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// decodeAck reads an acknowledgement. It takes ownership of the payload: a result is in its memory.
func (q *request) decodeAck(h nats.Header, m *nats.Msg) error {
	token, err := fdbpq.ParseToken(q.parsed.Token)
	if err != nil {
		return err
	}

	a, inHeader, err := parseAck(h, m.Data)
	if err != nil {
		return err
	}

	ops := slices.Grow(q.ops, len(a.Also))
	ops[0].Token = token
	wire.SetAck(&ops[0], &a)

	for i, text := range a.Also {
		also, err := fdbpq.ParseToken(text)
		if err != nil {
			return fmt.Errorf("also: element %d: %w", i, err)
		}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Token: also, Follows: true})
	}

	if inHeader && a.Kind == subjects.AckProgress {
		ops[0].Report = &fdbpq.Report{Progress: m.Data}
	}

	if inHeader && ops[0].Kind == fdbpq.OpAck {
		f := ackFrames{
			h: q.h, kind: q.parsed.Kind, ops: ops,
			tokens: append([]string{q.parsed.Token}, a.Also...),
		}
		if err := f.read(h, m.Data); err != nil {
			return err
		}
	}

	q.ops = ops
	if a.Kind == subjects.AckNext && m.Reply != "" { // else nobody would receive the next item
		q.ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, End: token.End, Follows: true})
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

// maxResult returns the most bytes of a result: the reply that returns it has headers as well.
func (h *Handler) maxResult() int {
	const headers = 4 << 10
	return min(h.config.MaxResult, max(int(h.config.MaxPayload())-headers, 0))
}

// setResult gives an acknowledgement a result, with the type in the headers beside it.
func setResult(op *fdbpq.Op, h nats.Header, value []byte, most int) error {
	if len(value) > most {
		return badRequest("a result of %d bytes: want at most %d", len(value), most)
	}

	said := reportOf(op)
	said.Result = value
	if value == nil {
		said.Result = []byte{} // nil would be none
	}
	_, err := single(h, subjects.HeaderContentType, parseContentType, &said.ContentType)
	return err
}

// reportOf returns the report of an operation, which it gets now if it has none.
func reportOf(op *fdbpq.Op) *fdbpq.Report {
	if op.Report == nil {
		op.Report = &fdbpq.Report{}
	}
	return op.Report
}

// parseContentType checks the type of a result.
func parseContentType(text string) (string, error) {
	if len(text) > fdbpq.MaxContentType || !utf8.ValidString(text) {
		return "", badRequest("%d bytes: want at most %d of UTF-8", len(text), fdbpq.MaxContentType)
	}
	return text, nil
}
