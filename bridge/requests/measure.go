package requests

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// opMemory estimates the memory that an operation takes, with its result, beyond its message.
const opMemory = 512

// measure adds to the size of a request what its payload does not show. It refuses a request whose
// reply or whose items the server could not carry.
func (q *request) measure() error {
	ops := q.ops
	if !q.verb.several {
		successors := ops[0].Successors()
		for i := range successors {
			if err := q.measurePushed(&successors[i].Message); err != nil {
				return badRequest("successor %d: %w", i, err)
			}
		}

		q.Size += opMemory * (len(ops) - 1 + len(successors))
		return q.measurePushed(&ops[0].Message) // nothing else has headers
	}

	// All of them may be duplicates.
	size := subjects.MaxPushedBatch(len(ops)) + subjects.MaxDuplicates(len(ops))
	most := q.h.config.MaxPayload()
	if q.reply != "" && int64(size) > most {
		return fmt.Errorf("%w: a reply with %d ids can have %d bytes, and the server carries at "+
			"most %d: send fewer items at once", errTooLarge, len(ops), size, most)
	}

	for i := range ops {
		if err := q.measurePushed(&ops[i].Message); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}

	q.Size += opMemory * len(ops)
	return nil
}

// measurePushed adds the headers of a pushed message to the size of its request. It refuses a
// message that the server could not carry back.
func (q *request) measurePushed(pushed *fdbpq.Message) error {
	if len(pushed.Headers) == 0 && pushed.MsgID == "" && pushed.Unique == "" && pushed.Keep == 0 {
		return nil
	}

	headers := wire.HeaderSize(pushed.Headers) + propertiesSize(pushed)
	if size, most := len(pushed.Value)+headers, q.h.config.MaxPayload(); int64(size) > most {
		return fmt.Errorf("%w: %d bytes with headers: the server carries at most %d",
			errTooLarge, size, most)
	}

	q.Size += headers + wire.HeaderMemory(pushed.Headers) + keysMemory(pushed)
	return nil
}

// propertiesSize is how many bytes setProperties adds to the message of an item.
func propertiesSize(m *fdbpq.Message) int {
	properties := nats.Header{}
	if setProperties(properties, m); len(properties) == 0 {
		return 0
	}
	if len(m.Headers) > 0 {
		return wire.LinesSize(properties)
	}
	return wire.HeaderSize(properties)
}

// keysMemory estimates how many bytes the MsgID and the unique key of a push add to a transaction,
// besides their own. Package fdbpq writes several store keys that contain them, and the transaction
// holds conflict ranges for these as well.
func keysMemory(m *fdbpq.Message) (n int) {
	const writes, rest = 20, 64
	for _, key := range []string{m.MsgID, m.Unique} {
		if key != "" {
			n += writes * (len(key) + rest)
		}
	}
	return n
}
