package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// one applies one operation at a time.
func (f *fixture) one(at time.Time, op fdbpq.Op) fdbpq.Result {
	f.Helper()
	return f.applyAt(at, op)[0]
}

// bothKinds runs a test with a priority queue and a FIFO queue, on every engine.
func bothKinds(t *testing.T, run func(f *fixture, q fdbpq.Target)) {
	onEngines(t, func(f *fixture) {
		run(f, f.queue("q"))
		run(f, f.fifoQueue("q"))
	})
}

// order returns the ids of the ready items, in order.
func (f *fixture) order(q fdbpq.Target) (ids []fdbpq.ID) {
	f.Helper()
	var popped []fdbpq.Result
	for {
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})[0]
		if r.Err != nil {
			break
		}
		ids, popped = append(ids, r.Item.ID), append(popped, r)
	}
	for i := range popped {
		f.apply(fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &popped[i].Item})
	}
	return ids
}

// A long way from either end a rank is exact as far as counters say it, and a lower bound within a priority.
func TestRankOfMany(t *testing.T) {
	f := onMem(t)
	q := f.queue("q")
	push := func(n int, priority int64) (last fdbpq.ID) {
		ops := make([]fdbpq.Op, n)
		for i := range ops {
			ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: priority}
		}
		results := f.apply(ops...)
		return results[n-1].Item.ID
	}
	rank := func(id fdbpq.ID, want int64, atLeast bool) {
		t.Helper()
		if r := f.apply(fdbpq.Op{Kind: fdbpq.OpRank, Queue: q, ID: id})[0]; r.Err != nil || r.Rank != want || r.RankAtLeast != atLeast {
			t.Errorf("rank %d, %v, %v: want %d, %v", r.Rank, r.RankAtLeast, r.Err, want, atLeast)
		}
	}
	rank(push(fdbpq.MaxRank+1, 1), fdbpq.MaxRank, false)
	rank(push(1, 1), fdbpq.MaxRank, true)
	rank(push(3, 2), fdbpq.MaxRank+2+2, false)
}
