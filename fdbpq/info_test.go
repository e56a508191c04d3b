package fdbpq_test

import (
	"slices"
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

func TestInfo(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("q"), f.fifoQueue("fifo")
		if got := f.infoOf(q, 0); got.Ready != 0 || got.Priorities != nil || !got.Oldest.IsZero() || !got.NextDue.IsZero() {
			t.Errorf("of a queue without items: %+v", got)
		}
		begin := time.Now().Truncate(time.Microsecond)
		at := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }
		for n, priority := range []int64{5, -1, 5, 5, 1 << 60} {
			f.applyAt(at(n), fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: priority}, fdbpq.Op{Kind: fdbpq.OpPush, Queue: fifo})
		}
		lease := f.applyAt(at(10), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})[0] // the -1
		first := f.applyAt(at(10), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})[0]
		f.applyAt(at(10), fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: first.Lease.Token, Delay: time.Minute})
		f.applyAt(at(10), fdbpq.Op{Kind: fdbpq.OpPop, Queue: fifo})

		got := f.infoOf(q, 0)
		want := []fdbpq.PriorityCount{{Priority: 5, Count: 2}, {Priority: 1 << 60, Count: 1}}
		if got.Ready != 3 || got.Leased != 1 || got.Delayed != 1 || !slices.Equal(got.Priorities, want) || got.MorePriorities {
			t.Errorf("priority queue: %+v", got)
		}
		if !got.Oldest.Equal(at(2)) || !got.NextDue.Equal(at(10).Add(time.Minute)) {
			t.Errorf("oldest %v, next due %v: want %v, %v", got.Oldest, got.NextDue, at(2), at(10).Add(time.Minute))
		}
		got = f.infoOf(fifo, 0)
		if got.Ready != 4 || got.Priorities != nil || got.MorePriorities || !got.Oldest.Equal(at(1)) {
			t.Errorf("FIFO queue: %+v", got)
		}
		// What is due counts as ready, and beside pushes an info comes first.
		results := f.applyAt(at(10).Add(2*time.Minute), fdbpq.Op{Kind: fdbpq.OpPush, Queue: q}, fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q})
		if info := results[1].Info; info.Ready != 4 || info.Delayed != 0 || !info.Oldest.Equal(at(0)) || !info.NextDue.Equal(lease.Lease.Until) {
			t.Errorf("once the delay is over: %+v", info)
		}
		inCallersTransaction := must(do(f, func(tx kv.Transaction) (fdbpq.Info, error) { return q.Info(tx) }))
		if inCallersTransaction.Ready != 5 {
			t.Errorf("Info: %+v", inCallersTransaction)
		}
		if info := must(do(f, func(tx kv.Transaction) (fdbpq.Info, error) { return fifo.Info(tx) })); info.Ready != 4 {
			t.Errorf("Info: %+v", info)
		}
	})
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
