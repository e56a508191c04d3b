package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// MaxHeldValue is the longest stored value that can be leased.
const MaxHeldValue = maxHeldValue

// ApplyAt runs ops in tx as if it were that time.
func ApplyAt(tx kv.Transaction, ops []Op, now time.Time) ([]Result, error) {
	return ApplyBehindAt(tx, ops, now, 0)
}

// ApplyBehindAt is ApplyAt for queues where no more than page entries of the time index are handled.
func ApplyBehindAt(tx kv.Transaction, ops []Op, now time.Time, page int) ([]Result, error) {
	t := newTxOps(tx, ops, now)
	t.duePage = page
	return t.results, t.apply()
}

// ClearItems removes the items as a program with the bare recipe may.
func (q *PriorityQueue) ClearItems(tx kv.Transaction) { tx.ClearRange(q.l.itemRange()) }

// HeldKey is where an item is while it is held.
func HeldKey(q Target, id *ID) []byte { return q.layout().heldKey(id) }
