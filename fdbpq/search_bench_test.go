package fdbpq_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// BenchmarkSearch measures a pop in a queue with many groups of one item each, behind the backlog
// of a group at its limit. It only says how long that takes, on the embedded store;
// docs/measured.md has the figures.
func BenchmarkSearch(b *testing.B) {
	for _, groups := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(groups), func(b *testing.B) {
			db := must(pebblekv.Open(b.TempDir(), pebblekv.Options{MinFreeSpace: -1}))
			defer db.Close()
			q := must(must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)).PriorityQueue("q"))
			fillGroups(b, db, q, groups)
			ops := []fdbpq.Op{op(opPopMin, q)}

			for b.Loop() {
				tx := must(db.Begin(b.Context(), kv.BeginOptions{}))
				results, err := fdbpq.ApplySearching(tx, ops, time.Now(), fdbpq.Searches{})
				if err != nil || results[0].Err != nil {
					b.Fatal(err, results[0].Err)
				}

				tx.Cancel() // the next pop finds the same
			}
		})
	}
}

// fillGroups writes an item of each group, and before these 25,000 items of a group that is paused.
// It writes the keys that pushes write, because pushes take too long.
func fillGroups(b *testing.B, db kv.Database, q fdbpq.Target, groups int) {
	b.Helper()
	const backlog = 25_000
	l, now := q.Layout(), time.Now()
	paused := fdbpq.Op{
		Kind:  fdbpq.OpConfigure,
		Queue: q,
		Configure: func(s *fdbpq.Settings) {
			s.PausedGroups = []string{"paused"}
		},
	}

	for done := 0; done < backlog+groups; {
		err := kv.Update(b.Context(), db, func(tx kv.Transaction) error {
			if _, err := fdbpq.Apply(tx, []fdbpq.Op{paused}, now); err != nil {
				return err
			}

			for range 5_000 {
				priority, group := int64(1), "paused"
				if done >= backlog {
					priority, group = int64(2), fmt.Sprint("group", done)
				}

				if done++; done > backlog+groups {
					break
				}

				hash, one := codec.HashGroup(nil, group), int64(1)
				id := codec.NewID(priority, int64(done), now, codec.UniqueBytes(1), 1)
				codec.SetGroup(&id, hash, 1)
				message := inGroup(opPush(q, priority, ""), group).Message
				tx.Set(l.MetaKey(&id, 0), codec.EncodeMeta(&message))
				tx.Set(l.ItemKey(&id), binary.BigEndian.AppendUint64(nil, uint64(done)))
				tx.Set(l.GroupItemKey(codec.KindGroupReady, hash, &id), []byte{})

				ready := codec.GroupCounter{Hash: hash, Of: codec.GroupReady}
				for _, counter := range [][]byte{
					l.GroupCounterKey(ready), l.TotalKey(), l.CounterKey(priority),
				} {
					tx.Add(counter, one)
				}
			}

			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
