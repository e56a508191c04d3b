//go:build fdb

package fdbkv_test

import (
	"fmt"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/recipe"
)

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
				theirs := recipe.Queue{Items: subspace.FromBytes(db.subspace.Sub("i").Bytes()), Packed: format.theirs}
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
							return theirs.Push(tr, priority, []byte(value))
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
			theirs := recipe.Queue{Items: subspace.FromBytes(db.subspace.Sub("i").Bytes()), Packed: format.theirs}
			values := []string{"a", "b", "c", "d", "e", "f", "g"}
			for i, value := range values {
				db.transact(t, func(tr fdb.Transaction) error {
					if i%2 == 0 {
						return theirs.Enqueue(tr, []byte(value))
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
func (o own) wantAlternating(t *testing.T, values []string, max bool, theirs recipe.Queue, ours func(kv.Transaction) (fdbpq.Item, error)) {
	t.Helper()
	for i := range values {
		want := values[i]
		if max {
			want = values[len(values)-1-i]
		}
		o.transact(t, func(tr fdb.Transaction) error {
			if i%4 < 2 {
				got, err := theirs.Pop(tr, max)
				if err == nil && string(got) != want {
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
		left, err := tr.GetRange(theirs.Items, fdb.RangeOptions{}).GetSliceWithError()
		if len(left) != 0 {
			t.Errorf("%d items are left", len(left))
		}
		return err
	})
}
