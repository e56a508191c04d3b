package fdbpqtest

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// byteCount is what a queue with max_bytes has stored about its bytes.
type byteCount struct {
	limited bool          // the queue has max_bytes
	total   int64         // the counter
	values  table[[]byte] // values of own items as stored, by id
	staged  table[[]byte] // values of items that staged pops have yet to collect, by request
	answers table[string] // their ids, by request
}

// countKey takes the key of the counter of bytes.
func (q *queue) countKey(_ tuple.Tuple, value []byte) (err error) {
	q.bytes.total, err = number(value)
	if err == nil && q.bytes.total <= 0 {
		err = fmt.Errorf("number of bytes is %d", q.bytes.total)
	}
	return err
}

// checkBytes compares the counter of bytes with the items.
func (q *queue) checkBytes() {
	b := &q.bytes
	if !b.limited {
		if b.total != 0 {
			q.problem("%d bytes without max_bytes", b.total)
		}
		return
	}

	for request, id := range b.answers {
		b.values.set(id, b.staged[request])
	}

	// The values of the queue have one of two formats.
	var raw, asTuples int64
	for id, value := range b.values {
		rest := int64(q.messages[id].Size())
		raw += int64(len(value)) + rest
		asTuples += int64(len(codec.DecodeValue(codec.TupleValues, value))) + rest
	}

	if b.total != raw && b.total != asTuples {
		q.problem("number of bytes is %d, there are %d or %d", b.total, raw, asTuples)
	}
}
