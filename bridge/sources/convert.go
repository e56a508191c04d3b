package sources

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// message is one of a stream, as it was delivered.
type message struct {
	*nats.Msg
	sequence uint64
	delivery uint64 // the consumer's number of it
	pending  uint64 // how many more the stream had
	removed  uint64 // how many before it the stream has no longer
	time     time.Time
}

// errTooLarge is of a message that the dead-letter queue cannot have either.
var errTooLarge = errors.New("too large for an item")

// convert makes a message an item, of at most maxPayload bytes. With an error the message is as the dead-letter queue has it.
func (d *drawer) convert(m *message, maxPayload int) (op fdbpq.Op, err error) {
	h, lines := nats.Header{}, 1
	for name, values := range m.Header {
		// Those of NATS and of the protocol would be about another message.
		if subjects.ValidHeaderName(name) && !subjects.IsNATS(name) && !subjects.IsReserved(name) {
			h[name] = values
			lines += len(values)
		}
	}
	var bad error
	if subjects.IsStatus(h, m.Data) {
		delete(h, subjects.HeaderStatus)
		bad = fmt.Errorf("header %s without a value: %s", subjects.HeaderStatus, subjects.WhyNoStatus)
	}
	source := []string{d.source.Stream + " " + strconv.FormatUint(m.sequence, 10)}
	h[subjects.HeaderSource] = source
	var group error
	if f := d.source.Group; f != nil {
		if text, where := field(f, m); text != "" {
			h[subjects.HeaderGroup] = []string{text}
			if _, group = subjects.GroupOfPush(h); group != nil {
				delete(h, subjects.HeaderGroup)
				group = fmt.Errorf("%s: %w", where, group)
			}
		}
	}
	op = fdbpq.Op{Kind: fdbpq.OpPush, Follows: true, Message: fdbpq.Message{Value: m.Data, Headers: h}}

	size, most := max(op.Message.Size(), len(m.Data)+wire.HeaderSize(h)), min(fdbpq.MaxMessageSize, maxPayload)
	if size > most || lines > subjects.MaxHeaders {
		op.Message = fdbpq.Message{Headers: nats.Header{subjects.HeaderSource: source}}
		return op, fmt.Errorf("%w: %d bytes and %d headers: want at most %d and %d", errTooLarge, size, lines, most, subjects.MaxHeaders)
	}

	if f := d.source.Priority; f != nil && f.Value != nil {
		op.Priority = *f.Value
	} else if f != nil {
		text, where := field(f, m)
		if op.Priority, err = subjects.ParsePriority(text); err != nil {
			err = fmt.Errorf("%s: %w", where, err)
		}
	}
	return op, cmp.Or(bad, err, group)
}

// field returns what a message has in a field, "" for nothing, and which that is.
func field(f *settings.SourceField, m *message) (text, where string) {
	if f.Header != "" {
		return m.Header.Get(f.Header), "header " + f.Header
	}
	if tokens := strings.Split(m.Subject, "."); f.Token <= len(tokens) {
		text = tokens[f.Token-1]
	}
	return text, fmt.Sprintf("token %d of its subject", f.Token)
}
