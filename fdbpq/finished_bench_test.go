package fdbpq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// BenchmarkNewestFinished measures what it takes to list the newest 50 of many finished jobs, and
// to get one of them by its id, on the embedded store; docs/measured.md has the figures.
func BenchmarkNewestFinished(b *testing.B) {
	for _, jobs := range []int{1_000, 10_000, 100_000, 1_000_000} {
		db := must(pebblekv.Open(b.TempDir(), pebblekv.Options{MinFreeSpace: -1}))
		q := must(must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)).PriorityQueue("q"))
		oldest := fillFinished(b, db, q, jobs)

		b.Run(fmt.Sprint("newest 50/", jobs), func(b *testing.B) {
			walk := fdbpq.Browse{State: fdbpq.Done, MaxItems: 50}
			for b.Loop() {
				visited := 0
				_, err := walk.Walk(b.Context(), db, q, time.Now(), func(*fdbpq.Browsed) bool {
					visited++
					return true
				})
				if err != nil || visited != 50 {
					b.Fatal(err, visited)
				}
			}
		})

		b.Run(fmt.Sprint("get/", jobs), func(b *testing.B) {
			get := []fdbpq.Op{named(fdbpq.OpGet, q, oldest)}
			for b.Loop() {
				results, err := kv.ReadTransact(b.Context(), db,
					func(r kv.Reader) ([]fdbpq.Result, error) { return fdbpq.Read(r, get) })
				if err != nil || results[0].Err != nil {
					b.Fatal(err, results[0].Err)
				}
			}
		})
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// fillFinished writes finished jobs with results of 128 bytes, and returns the oldest. It writes
// the keys that acknowledgements write, because these take too long.
func fillFinished(b *testing.B, db kv.Database, q fdbpq.Target, jobs int) (oldest fdbpq.ID) {
	b.Helper()
	l, now := q.Layout(), time.Now().Add(-time.Hour)
	for done := 0; done < jobs; {
		err := kv.Update(b.Context(), db, func(tx kv.Transaction) error {
			for end := min(done+5_000, jobs); done < end; done++ {
				at := now.Add(time.Duration(done) * time.Millisecond)
				m := fdbpq.Message{Value: make([]byte, 128), Keep: 24 * time.Hour}
				id := codec.NewID(1, int64(done), at, codec.UniqueBytes(1), l.Flags(&m))
				if done == 0 {
					oldest = id
				}

				f := codec.Finished{
					Item: codec.Item{ID: id, Message: m}, At: codec.Micros(at),
					Order: codec.Micros(at), Until: at.Add(24 * time.Hour),
					Deliveries: 1, Fence: int64(done),
					Outcome: codec.Outcome{Result: make([]byte, 128)},
				}
				parts := f.Encode()
				for n, part := range parts {
					tx.Set(l.FinishedKey(&id, n), part)
				}
				e := codec.FinishedEntry{
					Order: f.Order, Job: id, At: f.At, Until: f.Until, Parts: len(parts),
				}
				tx.Set(l.FinishedOrderKey(e.Order, &id), e.Encode())
				tx.Set(l.FinishedEndKey(e.Until, &id), e.EncodeEnd())
				tx.Add(l.FinishedCounterKey(), 1)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return oldest
}
