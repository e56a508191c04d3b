package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var errReadOnly = fmt.Errorf("%w: it is not a peek or a len", ErrOp)

// Read runs peeks and lens in the caller's transaction, and returns one Result for each, in
// the order of ops. It starts all reads before it waits for the first, so many take hardly
// more time than one.
//
// Other operations result in ErrOp. The error that Read returns is one of the store.
func Read(r kv.Reader, ops []Op) ([]Result, error) {
	results := make([]Result, len(ops))
	queues := group(ops, results)
	for i := range ops {
		if ops[i].Kind.writes() {
			results[i].Err = errReadOnly
		}
	}
	for _, q := range queues {
		q.beginLens(r)
		if q.peeks != nil {
			q.peeks.begin(r, q.l)
		}
	}
	for _, q := range queues {
		if err := q.finishLens(results); err != nil {
			return nil, err
		}
		if q.peeks != nil {
			if err := q.peeks.find(); err != nil {
				return nil, err
			}
		}
	}
	for _, q := range queues {
		if q.peeks != nil {
			if err := q.peeks.finish(results); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}
