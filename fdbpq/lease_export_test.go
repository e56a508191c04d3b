package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed: see
// internal/codec/list.go.
const ListedLife = time.Minute

// MaxHeldValue is the longest stored value that can be leased.
const MaxHeldValue = codec.MaxHeldValue

// ApplyBehindAt is Apply for queues where no more than page entries of the time index are handled, and
// pops search once they have passed over one item.
func ApplyBehindAt(tx kv.Transaction, ops []Op, now time.Time, page int) ([]Result, error) {
	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	t.duePage, t.passes = page, 1
	return t.results, t.apply()
}

// ClearItems removes the items as a program with the bare recipe may.
func (q *PriorityQueue) ClearItems(tx kv.Transaction) { tx.ClearRange(q.l.ItemRange()) }

// HeldKey is where an item is while it is held.
func HeldKey(q Target, id *ID) []byte { return q.Layout().HeldKey(id) }
