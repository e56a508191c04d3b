package fdbpq_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// TestReuse gives a Batcher results whose elements are full of other things: none of that is in the
// results of later batches, larger and smaller ones.
func TestReuse(t *testing.T) {
	keyspace := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	q := must(keyspace.PriorityQueue("jobs"))
	batcher := fdbpq.NewBatcher(memkv.New(memkv.Options{}), keyspace)
	full := fdbpq.Result{
		Item: fdbpq.Item{Message: fdbpq.Message{Value: []byte("of another")}}, Duplicate: true, Ready: 7, Len: 7, Rank: 7, Freed: true,
		Err: errors.New("of another"),
	}

	for round, n := range []int{3, 1, 40, 3, 40} {
		ops := []fdbpq.Op{{Kind: fdbpq.OpLen, Queue: q}}
		for range n {
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: fdbpq.Message{Value: []byte("mine")}}, op(opPopMin, q))
		}
		results := must(batcher.Apply(t.Context(), ops))
		for i := range results {
			want := fdbpq.Result{Item: results[i].Item}
			if value := want.Item.Value; i > 0 && i%2 == 0 && string(value) != "mine" || i%2 == 1 && value != nil {
				t.Errorf("round %d, operation %d: value %q", round, i, value)
			}
			if !reflect.DeepEqual(results[i], want) {
				t.Errorf("round %d, operation %d: %+v: want nothing but an item", round, i, results[i])
			}
			results[i] = full
		}
		batcher.Reuse(results)
	}
}
