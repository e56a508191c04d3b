package fdbpq

import (
	"encoding/binary"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func (q *queueOps) beginLens(r kv.Reader) {
	if len(q.lens) > 0 {
		q.length = r.Get(q.l.totalKey())
	}
}

// finishLens sets the results of all lens of the queue.
func (q *queueOps) finishLens(results []Result) error {
	if len(q.lens) == 0 {
		return nil
	}
	value, err := q.length.Get()
	if err != nil {
		return err
	}
	n, err := parseLength(value)
	if err != nil {
		return failOps(results, q.lens, err)
	}
	for _, i := range q.lens {
		results[i].Len = n
	}
	return nil
}

func parseLength(value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: item counter has %d bytes: want 8", ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}
