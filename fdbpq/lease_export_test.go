package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// MaxHeldValue is the longest stored value that can be leased.
const MaxHeldValue = maxHeldValue

// ApplyAt runs ops in tx as if it were that time.
func ApplyAt(tx kv.Transaction, ops []Op, now time.Time) ([]Result, error) {
	t := newTxOps(tx, ops, now)
	t.callers = true
	return t.results, t.apply()
}

// ClearItems removes the items as a program with the bare recipe may.
func (q *PriorityQueue) ClearItems(tx kv.Transaction) { tx.ClearRange(q.l.itemRange()) }
