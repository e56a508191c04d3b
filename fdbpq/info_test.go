package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// infoOf returns what a Batcher says about a queue.
func (f *fixture) infoOf(q fdbpq.Target, limit int) fdbpq.Info {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q, MaxPriorities: limit})[0]
	if r.Err != nil {
		f.Fatal(r.Err)
	}
	return *r.Info
}

func TestInfoOfManyPriorities(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		var pushes []fdbpq.Op
		for p := range int64(30) {
			pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: p})
		}
		f.apply(pushes...)
		f.wantPriorities(q, 0, fdbpq.Info{Ready: 30}) // without the counters of other states
		leases := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[1].Lease.Token, Delay: time.Hour})
		f.wantPriorities(q, 2, fdbpq.Info{Ready: 28, Leased: 1, Delayed: 1})
	})
}

// wantPriorities compares the infos of a queue that has one item of each priority from first to 29.
func (f *fixture) wantPriorities(q *fdbpq.PriorityQueue, first int64, want fdbpq.Info) {
	f.Helper()
	all := int(want.Ready)
	for limit := range 40 {
		got := f.infoOf(q, limit)
		n := all
		if limit > 0 {
			n = min(2*max(limit/2, 1), all)
		}
		if len(got.Priorities) != n {
			f.Errorf("limit %d: %d priorities: want %d", limit, len(got.Priorities), n)
		}
		if got.Ready != want.Ready || got.Leased != want.Leased || got.Delayed != want.Delayed || got.MorePriorities != (n < all) {
			f.Errorf("limit %d: %+v", limit, got)
		}
		for i, p := range got.Priorities {
			if p.Count != 1 || i > 0 && p.Priority <= got.Priorities[i-1].Priority {
				f.Errorf("limit %d: %+v", limit, got.Priorities)
			}
		}
		if last := got.Priorities[len(got.Priorities)-1]; got.Priorities[0].Priority != first || last.Priority != 29 {
			f.Errorf("limit %d: from %v to %v", limit, got.Priorities[0], last)
		}
	}
}

// A damaged counter fails the info, and nothing else of the batch.
func TestInfoOfDamagedQueue(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("q")
	f.push(q, 0, "a")
	write(f, func(tx kv.Transaction) { tx.Set(tuple.Tuple{f.priority, "q", "n"}.Pack(), []byte("no")) })
	results := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q})
	wantError(t, results[0].Err, fdbpq.ErrCorrupt)
	if results[0].Info != nil || results[1].Err != nil {
		t.Errorf("info %+v, peek %v", results[0].Info, results[1].Err)
	}
}
