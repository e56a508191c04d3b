package fdbpq_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// BenchmarkApply runs batches of 60 operations on a queue with ten priorities, in memory: in
// one iteration 60 pushes, in the next 60 pops, each timed alone.
func BenchmarkApply(b *testing.B) {
	const size = 60
	keyspace := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	q := must(keyspace.PriorityQueue("jobs"))
	value := pattern(128, 1)
	var pushes, pops []fdbpq.Op
	for i := range size {
		pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i % 10), Message: fdbpq.Message{Value: value}})
		pops = append(pops, op(opPopMin, q))
	}
	for _, side := range []struct {
		name         string
		timed, other []fdbpq.Op
	}{{"push", pushes, pops}, {"pop", pops, pushes}} {
		b.Run(side.name, func(b *testing.B) {
			batcher := fdbpq.NewBatcher(memkv.New(memkv.Options{History: 100}), keyspace)
			apply := func(ops []fdbpq.Op) {
				if _, err := batcher.Apply(b.Context(), ops); err != nil {
					b.Fatal(err)
				}
			}
			apply(pushes)
			apply(pushes)
			b.ReportAllocs()
			for b.Loop() {
				apply(side.timed)
				b.StopTimer()
				apply(side.other)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/item")
		})
	}
}
