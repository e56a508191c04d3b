package fdbpq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// BenchmarkApply runs batches of 60 operations on a queue with ten priorities, in memory: in
// one iteration 60 pushes, in the next 60 pops, each timed alone. Group is pushes that follow
// each other.
func BenchmarkApply(b *testing.B) {
	const size = 60
	keyspace := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	q := must(keyspace.PriorityQueue("jobs"))
	value := pattern(128, 1)
	var pushes, group, pops []fdbpq.Op
	for i := range size {
		pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i % 10), Message: fdbpq.Message{Value: value}})
		group = append(group, pushes[i])
		group[i].Follows = i > 0
		pops = append(pops, op(opPopMin, q))
	}
	for _, side := range []struct {
		name         string
		timed, other []fdbpq.Op
	}{{"push", pushes, pops}, {"group", group, pops}, {"pop", pops, pushes}} {
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

// BenchmarkLeases runs batches of leases and acknowledgements as BenchmarkApply runs pushes and
// pops: 60 leases, 60 acknowledgements, and 60 acknowledgements that each lease another item.
func BenchmarkLeases(b *testing.B) {
	const size = 60
	keyspace := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	q := must(keyspace.PriorityQueue("jobs"))
	value := pattern(128, 1)
	var pushes []fdbpq.Op
	for i := range size {
		pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i % 10), Message: fdbpq.Message{Value: value}})
	}
	leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}}, size)
	for _, name := range []string{"lease", "ack", "next"} {
		b.Run(name, func(b *testing.B) {
			batcher := fdbpq.NewBatcher(memkv.New(memkv.Options{History: 100}), keyspace)
			apply := func(ops []fdbpq.Op) []fdbpq.Result { return must(batcher.Apply(b.Context(), ops)) }
			acks := func(leases []fdbpq.Result, next bool) (ops []fdbpq.Op) {
				for i := range leases {
					if leases[i].Err != nil {
						b.Fatal(leases[i].Err)
					}
					if leases[i].Lease.Deliveries == 0 {
						continue // the acknowledgement before it
					}
					ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: leases[i].Lease.Token})
					if next {
						ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Follows: true})
					}
				}
				return ops
			}
			apply(pushes)
			leased := apply(leases)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				apply(pushes)
				if name != "next" {
					apply(acks(leased, false))
				}
				ops := leases
				switch name {
				case "ack":
					ops = acks(apply(leases), false)
				case "next":
					ops = acks(leased, true)
				}
				b.StartTimer()
				leased = apply(ops)
				if name == "ack" {
					leased = nil
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/item")
		})
	}
}
