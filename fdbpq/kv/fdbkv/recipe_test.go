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

// Items pushed by either side come out of both ends of either side, in one order.
func TestRecipes(t *testing.T) {
	for name, format := range formats {
		for _, kind := range []string{"min", "max", "FIFO"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				db := openOwn(t)
				queue := fdbpq.NewPriorityQueue(db.subspace, format.ours)
				fifo := fdbpq.NewQueue(db.subspace, format.ours)
				items := subspace.FromBytes(db.subspace.Sub("i").Bytes())
				theirs := recipe.Queue{Items: items, Packed: format.theirs}
				push := theirs.Push
				enqueue := func(tr fdb.Transaction, _ int64, value []byte) error {
					return theirs.Enqueue(tr, value)
				}

				ourPush := func(tr fdb.Transaction, priority int64, value []byte) error {
					_, err := queue.Push(fdbkv.Wrap(tr), priority, fdbpq.Message{Value: value})
					return err
				}

				ourEnqueue := func(tr fdb.Transaction, _ int64, value []byte) error {
					_, err := fifo.Enqueue(fdbkv.Wrap(tr), fdbpq.Message{Value: value})
					return err
				}

				pop := queue.PopMin
				switch kind {
				case "max":
					pop = queue.PopMax
				case "FIFO":
					push, ourPush, pop = enqueue, ourEnqueue, fifo.Dequeue
				}

				// In the order of priority, then of pushing.
				values := []string{"-2 a", "-2 b", "-2 c", "0 a", "0 b", "5 a", "5 b", "5 c"}
				for i, value := range values {
					db.transact(t, func(tr fdb.Transaction) error {
						var priority int64
						fmt.Sscan(value, &priority)

						if i%2 == 0 {
							return push(tr, priority, []byte(value))
						}

						return ourPush(tr, priority, []byte(value))
					})
				}
				db.wantAlternating(t, values, kind == "max", theirs, pop)
			})
		}
	}
}

// wantAlternating pops values by turns, so that each side gets items of both.
func (o own) wantAlternating(
	t *testing.T, values []string, max bool, theirs recipe.Queue,
	ours func(kv.Transaction) (fdbpq.Item, error),
) {
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
