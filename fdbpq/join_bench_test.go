package fdbpq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// BenchmarkJoins measures jobs that are kept, pushed, leased and acknowledged in batches of 33, on
// the embedded store: alone, and as members of joins that have 33 or 3 of them, with the joiners.
// docs/measured.md has the figures. An iteration is a job that is no joiner.
func BenchmarkJoins(b *testing.B) {
	for _, members := range []int{0, 33, 3} {
		b.Run(fmt.Sprint("members=", members), func(b *testing.B) {
			db := must(pebblekv.Open(b.TempDir(), pebblekv.Options{MinFreeSpace: -1}))
			k := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
			q, batcher := must(k.PriorityQueue("q")), fdbpq.NewBatcher(db, k)
			apply := func(ops []fdbpq.Op) []fdbpq.Result {
				results, err := batcher.Apply(b.Context(), ops)
				if err != nil {
					b.Fatal(err)
				}
				return results
			}

			begun := time.Now()
			for done := 0; done < b.N; {
				push := joinBatch(q, members)
				apply(push)
				for n := range push {
					push[n] = fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
				}
				var acked []fdbpq.Op
				for _, r := range apply(push) {
					if r.Err == nil {
						acked = append(acked, ackWith(q, r.Lease.Token, "result"))
					}
				}
				apply(acked)
				done += 33
			}
			b.ReportMetric(float64(time.Since(begun).Microseconds())/float64(b.N), "us/job")
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// joinBatch is the pushes of 33 jobs that are kept, members of joins with so many members; 0 is no
// join.
func joinBatch(q fdbpq.Target, members int) (ops []fdbpq.Op) {
	for n := range 33 {
		if members > 0 && n%members == 0 {
			ops = append(ops, joining(opPush(q, 0, "joiner")))
		}
		job := kept(opPush(q, 5, "a job of some bytes"))
		if members > 0 {
			job.MemberOf, job.Follows = n%members+1, true
		}
		ops = append(ops, job)
	}
	return ops
}
