//go:build fdb

// Package recipe implements FoundationDB's published recipes for a priority queue and a
// queue as another program would: with the binding and its tuple layer, and with none
// of this project's code. Tests compare with it. It needs the build tag fdb.
package recipe

import (
	"crypto/rand"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"
)

// Queue says where the items of a queue are, and in which form.
type Queue struct {
	Items subspace.Subspace
	// Packed values are tuples, as in the recipe for Java; otherwise they are raw, as
	// in the one for Python.
	Packed bool
}

// Push adds a value with the next count of its priority.
func (q Queue) Push(tr fdb.Transaction, priority int64, value []byte) error {
	within := q.Items.Sub(priority)
	count, err := next(tr, within, 0)
	if err != nil {
		return err
	}
	tr.Set(within.Pack(tuple.Tuple{count, random()}), q.pack(value))
	return nil
}

// Enqueue adds a value with the next index to a queue without priorities.
func (q Queue) Enqueue(tr fdb.Transaction, value []byte) error {
	index, err := next(tr, q.Items, 1)
	if err != nil {
		return err
	}
	tr.Set(q.Items.Pack(tuple.Tuple{index, random()}), q.pack(value))
	return nil
}

// Pop removes and returns the first value, or the last if max; nil if there is
// none.
func (q Queue) Pop(tr fdb.Transaction, max bool) ([]byte, error) {
	found, err := tr.GetRange(q.Items, fdb.RangeOptions{Limit: 1, Reverse: max}).GetSliceWithError()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	tr.Clear(found[0].Key)
	return q.unpack(found[0].Value)
}

// next returns one more than the first element of the last key below s, or first if
// there is none.
func next(tr fdb.Transaction, s subspace.Subspace, first int64) (int64, error) {
	o := fdb.RangeOptions{Limit: 1, Reverse: true}
	last, err := tr.Snapshot().GetRange(s, o).GetSliceWithError()
	if err != nil || len(last) == 0 {
		return first, err
	}

	t, err := s.Unpack(last[0].Key)
	if err != nil {
		return 0, err
	}

	return t[0].(int64) + 1, nil
}

func random() []byte {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // never returns an error: see crypto/rand
	return b
}

func (q Queue) pack(value []byte) []byte {
	if q.Packed {
		return tuple.Tuple{value}.Pack()
	}
	return value
}

func (q Queue) unpack(stored []byte) ([]byte, error) {
	if !q.Packed {
		return stored, nil
	}
	t, err := tuple.Unpack(stored)
	if err != nil {
		return nil, err
	}
	return t[0].([]byte), nil
}
