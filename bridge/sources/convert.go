package sources

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// message is one of a stream, as it was delivered.
type message struct {
	jetstream.Msg
	sequence uint64
	delivery uint64 // the consumer's number of it
	pending  uint64 // how many more the stream had
}

// errTooLarge is of a message that the dead-letter queue could not give back either.
var errTooLarge = errors.New("too large for an item")

// convert makes a message an item. If the error is not nil, the message is as it would be in the
// dead-letter queue.
func convert(s *settings.Source, m *message, maxPayload int64) (op fdbpq.Op, err error) {
	op = fdbpq.Op{Kind: fdbpq.OpPush, Follows: true}
	h := nats.Header{}
	lines := 1
	for name, values := range m.Headers() {
		if kept(name) {
			h[name] = values
			lines += len(values)
		}
	}
	h.Set(subjects.HeaderSource, fmt.Sprintf("%s %d", s.Stream, m.sequence))
	op.Message = fdbpq.Message{Value: m.Data(), Headers: h}

	size := max(op.Message.Size(), len(m.Data())+wire.HeaderSize(h))
	if size > fdbpq.MaxMessageSize || int64(size) > maxPayload || lines > subjects.MaxHeaders {
		op.Message = fdbpq.Message{Headers: nats.Header{subjects.HeaderSource: h[subjects.HeaderSource]}}
		return op, fmt.Errorf("%w: %d bytes with %d headers: want at most %d and %d", errTooLarge, size, lines, min(fdbpq.MaxMessageSize, maxPayload), subjects.MaxHeaders)
	}

	if s.Priority != nil {
		text, found := field(s.Priority, m)
		if !found {
			return op, fmt.Errorf("no priority: it has no %s", where(s.Priority))
		}
		if op.Priority, err = subjects.ParsePriority(text); err != nil {
			return op, fmt.Errorf("%s: %w", where(s.Priority), err)
		}
	}
	if s.Group != nil {
		if group, found := field(s.Group, m); found {
			h[subjects.HeaderGroup] = []string{group}
			if _, err = subjects.GroupOfPush(h); err != nil {
				delete(h, subjects.HeaderGroup)
				return op, fmt.Errorf("%s: %w", where(s.Group), err)
			}
		}
	}
	return op, nil
}

// kept reports whether a header comes along. Those of NATS and of this protocol do not: they would be
// about another message.
func kept(name string) bool {
	return subjects.ValidHeaderName(name) && !subjects.IsNATS(name) && !subjects.IsReserved(name) &&
		!subjects.AddedByServer(name) && !strings.EqualFold(name, "Status")
}

// field returns what a message has where the field says.
func field(f *settings.SourceField, m *message) (text string, found bool) {
	switch {
	case f.Header != "":
		text = m.Headers().Get(f.Header)
	case f.Token > 0:
		if tokens := strings.Split(m.Subject(), "."); f.Token <= len(tokens) {
			text = tokens[f.Token-1]
		}
	default:
		text = fmt.Sprint(f.Value)
	}
	return text, text != ""
}

func where(f *settings.SourceField) string {
	if f.Header != "" {
		return "header " + f.Header
	}
	return fmt.Sprintf("token %d of its subject", f.Token)
}

// consumerName is the name of a queue's consumers, which says whose they are.
func consumerName(store string, queue fdbpq.QueueName) string {
	name, kind := queue.Name, "pq"
	if queue.FIFO {
		kind = "q"
	}
	bad := func(r rune) bool {
		return strings.ContainsRune(`.*>/\`, r) || !unicode.IsPrint(r) || unicode.IsSpace(r)
	}
	if strings.ContainsFunc(name, bad) {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:16])
	}
	return "pq_" + store + "_" + kind + "_" + name
}
