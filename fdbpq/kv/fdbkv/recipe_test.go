//go:build fdb

package fdbkv_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"
	fdbtuple "github.com/apple/foundationdb/bindings/go/src/fdb/tuple"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// recipe is another program that uses FoundationDB's published recipes for a
// priority queue and a queue: through the binding and its tuple layer, with none
// of our code.
type recipe struct {
	items  subspace.Subspace
	packed bool // values are tuples, as in the recipe for Java; raw as in Python otherwise
}

func (r recipe) pack(value string) []byte {
	if r.packed {
		return fdbtuple.Tuple{[]byte(value)}.Pack()
	}
	return []byte(value)
}

func (r recipe) unpack(stored []byte) (string, error) {
	if !r.packed {
		return string(stored), nil
	}
	t, err := fdbtuple.Unpack(stored)
	if err != nil {
		return "", err
	}
	return string(t[0].([]byte)), nil
}

// push adds a value with the next count of its priority.
func (r recipe) push(tr fdb.Transaction, priority int64, value string) error {
	count, err := next(tr, r.items.Sub(priority), 0)
	if err != nil {
		return err
	}
	tr.Set(r.items.Sub(priority).Pack(fdbtuple.Tuple{count, random()}), r.pack(value))
	return nil
}

// enqueue adds a value with the next index.
func (r recipe) enqueue(tr fdb.Transaction, value string) error {
	index, err := next(tr, r.items, 1)
	if err != nil {
		return err
	}
	tr.Set(r.items.Pack(fdbtuple.Tuple{index, random()}), r.pack(value))
	return nil
}

// next is one more than the last first element below s, or first.
func next(tr fdb.Transaction, s subspace.Subspace, first int64) (int64, error) {
	last, err := tr.Snapshot().GetRange(s, fdb.RangeOptions{Limit: 1, Reverse: true}).GetSliceWithError()
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
	rand.Read(b)
	return b
}

// pop removes and returns the first value, or the last if max; "" if there is
// none.
func (r recipe) pop(tr fdb.Transaction, max bool) (string, error) {
	found, err := tr.GetRange(r.items, fdb.RangeOptions{Limit: 1, Reverse: max}).GetSliceWithError()
	if err != nil || len(found) == 0 {
		return "", err
	}
	tr.Clear(found[0].Key)
	return r.unpack(found[0].Value)
}

// formats are the ways to store values that the recipes have.
var formats = map[string]struct {
	ours   fdbpq.ValueFormat
	theirs bool
}{
	"Raw":   {fdbpq.RawValues, false},
	"Tuple": {fdbpq.TupleValues, true},
}

// TestPriorityQueueRecipe: items pushed by either side come out of both ends of
// either side, in one order.
func TestPriorityQueueRecipe(t *testing.T) {
	for name, format := range formats {
		for _, max := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/max=%v", name, max), func(t *testing.T) {
				db := openOwn(t)
				queue := fdbpq.NewPriorityQueue(db.subspace, format.ours)
				theirs := recipe{subspace.FromBytes(db.subspace.Sub("i").Bytes()), format.theirs}
				push := func(tx kv.Transaction, priority int64, value string) error {
					_, err := queue.Push(tx, priority, fdbpq.Message{Value: []byte(value)})
					return err
				}
				pop := func(tx kv.Transaction) (fdbpq.Item, error) {
					if max {
						return queue.PopMax(tx)
					}
					return queue.PopMin(tx)
				}
				// In the order of priority, then of pushing.
				values := []string{"-2 a", "-2 b", "-2 c", "0 a", "0 b", "5 a", "5 b", "5 c"}
				for i, value := range values {
					db.transact(t, func(tr fdb.Transaction) error {
						var priority int64
						fmt.Sscan(value, &priority)
						if i%2 == 0 {
							return theirs.push(tr, priority, value)
						}
						return push(fdbkv.Wrap(tr), priority, value)
					})
				}
				db.wantAlternating(t, values, max, theirs, pop)
			})
		}
	}
}

// TestQueueRecipe is TestPriorityQueueRecipe for the FIFO queue.
func TestQueueRecipe(t *testing.T) {
	for name, format := range formats {
		t.Run(name, func(t *testing.T) {
			db := openOwn(t)
			queue := fdbpq.NewQueue(db.subspace, format.ours)
			theirs := recipe{subspace.FromBytes(db.subspace.Sub("i").Bytes()), format.theirs}
			values := []string{"a", "b", "c", "d", "e", "f", "g"}
			for i, value := range values {
				db.transact(t, func(tr fdb.Transaction) error {
					if i%2 == 0 {
						return theirs.enqueue(tr, value)
					}
					_, err := queue.Enqueue(fdbkv.Wrap(tr), fdbpq.Message{Value: []byte(value)})
					return err
				})
			}
			db.wantAlternating(t, values, false, theirs, queue.Dequeue)
		})
	}
}

// wantAlternating pops values by turns, so that each side gets items of both.
func (o own) wantAlternating(t *testing.T, values []string, max bool, theirs recipe, ours func(kv.Transaction) (fdbpq.Item, error)) {
	t.Helper()
	for i := range values {
		want := values[i]
		if max {
			want = values[len(values)-1-i]
		}
		o.transact(t, func(tr fdb.Transaction) error {
			if i%4 < 2 {
				got, err := theirs.pop(tr, max)
				if err == nil && got != want {
					t.Errorf("the recipe popped %q, want %q", got, want)
				}
				return err
			}
			item, err := ours(fdbkv.Wrap(tr))
			if err == nil && string(item.Value) != want {
				t.Errorf("we popped %q, want %q", item.Value, want)
			}
			return err
		})
	}
	o.transact(t, func(tr fdb.Transaction) error {
		left, err := tr.GetRange(theirs.items, fdb.RangeOptions{}).GetSliceWithError()
		if len(left) != 0 {
			t.Errorf("%d items are left", len(left))
		}
		return err
	})
}
