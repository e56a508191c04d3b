package sources

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// message is a message of a stream, as it was delivered.
type message struct {
	*nats.Msg
	sequence uint64 // in the stream
	delivery uint64 // the consumer's number of it
	pending  uint64 // how many more the stream had
	removed  uint64 // how many before it the stream has no longer
	time     time.Time
	tooLarge error // why the queue cannot have it, as far as it was tried
}

// errTooLarge is of a message that does not even fit into the dead-letter queue.
var errTooLarge = errors.New("too large for an item")

// convert makes the push of an item of at most maxPayload bytes from a message. With an error, it
// is the message of a dead letter.
func (d *drawer) convert(m *message, maxPayload int) (op fdbpq.Op, err error) {
	h, lines, bad := headersOf(m.Msg)
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

	op = fdbpq.Op{Kind: fdbpq.OpPush, Follows: true}
	op.Message = fdbpq.Message{Value: m.Data, Headers: h}
	op.Message.Keep, _ = subjects.ParseKeep(m.Header.Get(subjects.HeaderKeep)) // 0 for a bad one

	// A client gets the item in a message of NATS.
	size := max(op.Message.Size(), len(m.Data)+wire.HeaderSize(h))
	most := min(fdbpq.MaxMessageSize, maxPayload-wire.FrameRoom(h))
	if size > most || lines >= subjects.MaxHeaders {
		op.Message = fdbpq.Message{Headers: nats.Header{subjects.HeaderSource: source}}
		return op, fmt.Errorf("%w: %d bytes and %d headers: want at most %d and %d",
			errTooLarge, size, lines+1, most, subjects.MaxHeaders)
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

// headersOf returns the headers that the item of a message gets, and how many lines these are. The
// error names headers that it cannot have: they would be lost on the way to a client.
func headersOf(m *nats.Msg) (h nats.Header, lines int, err error) {
	h = nats.Header{}
	var bad []string
	for name, values := range m.Header {
		switch {
		case aboutMessage(name):
		case !subjects.ValidHeaderName(name) || strings.Contains(strings.Join(values, ""), "\r"):
			bad = append(bad, name+": "+strings.Join(values, ", "))
		default:
			h[name] = values
			lines += len(values)
		}
	}

	switch slices.Sort(bad); {
	case len(bad) > 0:
		err = fmt.Errorf("headers %.80q: want names of letters, digits and any of %s, and no CR "+
			"in a value", bad, subjects.HeaderPunctuation)
	case subjects.IsStatus(h, m.Data):
		delete(h, subjects.HeaderStatus)
		err = fmt.Errorf("header %s without a value: %s",
			subjects.HeaderStatus, subjects.WhyNoStatus)
	default:
		err = wire.CheckBlock(m.Header, wire.BlockSize(m), aboutMessage)
	}

	return h, lines, err
}

// aboutMessage reports whether a header is one of NATS or of the protocol. It is about the message
// of the stream, not about the item.
func aboutMessage(name string) bool {
	return subjects.IsNATS(name) || subjects.IsReserved(name) || subjects.AddedByServer(name)
}

// field returns what a message has in a field, "" for nothing, and where that is.
func field(f *settings.SourceField, m *message) (text, where string) {
	if f.Header != "" {
		return m.Header.Get(f.Header), "header " + f.Header
	}
	if tokens := strings.Split(m.Subject, "."); f.Token <= len(tokens) {
		text = tokens[f.Token-1]
	}
	return text, fmt.Sprintf("token %d of its subject", f.Token)
}
