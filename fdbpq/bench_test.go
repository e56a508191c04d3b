package fdbpq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// BenchmarkApply runs batches of 60 operations on a queue with ten priorities, in memory: what fills the queue and
// empties it again.
func BenchmarkApply(b *testing.B) {
	const size = 60
	keyspace := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	q := must(keyspace.PriorityQueue("jobs"))
	pushes := many(size, func(i int) fdbpq.Op {
		return opPush(q, int64(i%10), string(pattern(128, 1)))
	})
	group, pops := grouped(slices.Clone(pushes)...), slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, size)
	leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}}, size)
	for _, cycle := range []struct {
		name  string
		batch [][]fdbpq.Op // nil acknowledges the leases before it
	}{
		{"push and pop", [][]fdbpq.Op{pushes, pops}},
		{"group and pop", [][]fdbpq.Op{group, pops}},
		{"push, lease and ack", [][]fdbpq.Op{pushes, leases, nil}},
	} {
		b.Run(cycle.name, func(b *testing.B) {
			batcher := fdbpq.NewBatcher(memkv.New(memkv.Options{History: 100}), keyspace)
			b.ReportAllocs()
			for b.Loop() {
				var results []fdbpq.Result
				for _, ops := range cycle.batch {
					if ops == nil {
						ops = many(size, func(i int) fdbpq.Op { return acks(q, results[i].Lease.Token)[0] })
					}
					results = must(batcher.Apply(b.Context(), ops))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/item")
		})
	}
}
