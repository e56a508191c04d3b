package fdbpqtest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// byteCount is what a queue with max_bytes has stored about its bytes.
type byteCount struct {
	limited bool          // the queue has max_bytes
	total   int64         // the counter
	counted []byte        // which items count; nil if none do
	values  table[[]byte] // values of own items as stored, by id
	staged  table[[]byte] // values of items that staged pops have yet to collect, by request
	answers table[string] // their ids, by request
}

// countKey takes the key of the counter of bytes, or of what it counts.
func (q *queue) countKey(key tuple.Tuple, value []byte) error {
	name, _ := elementAt[string](key, 0)
	isCounted := len(key) == 1 && name == "counted" && len(value) > 0
	switch {
	case len(key) == 0 && len(value) == 8:
		q.bytes.total = int64(binary.LittleEndian.Uint64(value))
		if q.bytes.total <= 0 {
			return fmt.Errorf("number of bytes is %d", q.bytes.total)
		}
	case isCounted && value[0] <= 1 && (value[0] == 1) == (len(value) > 1):
		q.bytes.counted = value
	default:
		return fmt.Errorf("malformed count of bytes: value %x", value)
	}

	return nil
}

// counts reports whether an item counts.
func (b *byteCount) counts(id string) bool {
	return b.counted != nil && (b.counted[0] == 0 || bytes.Compare([]byte(id), b.counted[1:]) <= 0)
}

// checkBytes compares the counter of bytes with the items.
func (q *queue) checkBytes() {
	b := &q.bytes
	if !b.limited && (b.total != 0 || b.counted != nil) {
		q.problem("%d bytes, counted %x, without max_bytes", b.total, b.counted)
	}

	for request, id := range b.answers {
		b.values.set(id, b.staged[request])
	}

	// The values of the queue have one of two formats.
	var raw, asTuples int64
	for id, value := range b.values {
		if !b.counts(id) {
			continue
		}

		rest := int64(q.messages[id].Size())
		raw += int64(len(value)) + rest
		asTuples += int64(len(codec.DecodeValue(codec.TupleValues, value))) + rest
	}

	if b.total != raw && b.total != asTuples {
		q.problem("number of bytes is %d, there are %d or %d", b.total, raw, asTuples)
	}
}
