package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func (q *queueOps) beginLens(r kv.Reader) {
	if len(q.lens) > 0 {
		q.length = r.Get(q.l.TotalKey())
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
	n, err := state.ParseLength(value)
	if err != nil {
		return failOps(results, q.lens, err)
	}
	for _, i := range q.lens {
		results[i].Len = n
	}
	return nil
}
