package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// MaxHeldValue is the longest stored value that can be leased.
const MaxHeldValue = maxHeldValue

// ApplyAt runs ops in tx as if it were that time.
func ApplyAt(tx kv.Transaction, ops []Op, now time.Time) ([]Result, error) {
	t, err := apply(tx, ops, now, nil, nil)
	if err != nil {
		return nil, err
	}
	return t.results, nil
}
