package fdbpq_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// withDelay is a push with a delay.
func withDelay(push fdbpq.Op, delay time.Duration) fdbpq.Op {
	push.Delay = delay
	return push
}

// A version without delayed pushes that brings the item back leaves a history that this one
// understands.
func TestDelayedPushBroughtBackByAnotherVersion(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	id := f.push(q, 1, "x")
	write(f, func(tx kv.Transaction) {
		key := tuple.Tuple{f.priority, "jobs", "a", id.Priority, id.Count, id.Random[:]}
		tx.Set(key.Pack(), tuple.Tuple{int64(0), int64(1), int64(30_000_000)}.Pack())
	})
	if r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]; r.Err != nil || r.Lease.Deliveries != 1 {
		f.Errorf("leased: %+v", r)
	}
}

// The bounds, and times in the past, however far.
func TestDelayBounds(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		now := time.Now().Truncate(time.Microsecond) // a nanosecond later is none later
		f.batcher.SetNow(func() time.Time { return now })
		past, future := opPush(q, 1, "past"), opPush(q, 3, "future")
		past.At, future.At = time.Unix(-1<<40, 0), time.Date(2199, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
		results := f.apply(past, withDelay(opPush(q, 1, "ns"), 1), withDelay(opPush(q, 2, "long"), fdbpq.MaxDelay), future)
		for i, r := range results {
			wantError(f.T, r.Err, nil)
			wantEqual(f.T, fmt.Sprint("delayed, push ", i), !r.NextDue.IsZero(), i > 1)
		}
		now = now.Add(fdbpq.MaxDelay)
		wantEqual(f.T, "ready after ten years", f.apply(op(opLen, q))[0].Len, 3)
	})
}

// Delayed pushes neither conflict with each other nor with pushes.
func TestDelayedPushesDoNotConflict(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 1, "old")
		var open []kv.Transaction
		for i := range 4 {
			tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
			delay := time.Duration(i%2) * time.Hour
			must(q.PushAfter(tx, 1, message(fmt.Sprint(i)), delay))
			open = append(open, tx)
			if f.db.Traits().Serial { // one at a time
				must(tx.Commit().Get())
			}
		}
		if !f.db.Traits().Serial {
			for _, tx := range slices.Backward(open) {
				if _, err := tx.Commit().Get(); err != nil {
					f.Error(err)
				}
			}
		}
		wantEqual(f.T, "ready", f.length(q), 3)
	})
}

// The methods of the two kinds of queues.
func TestPushAfterAndAt(t *testing.T) {
	f := onMem(t)
	q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
	hour := time.Now().Add(time.Hour)
	write(f, func(tx kv.Transaction) {
		must(q.PushAfter(tx, 1, message("a"), time.Hour))
		must(q.PushAt(tx, 1, message("b"), hour))
		must(q.PushAt(tx, 1, message("c"), time.Now().Add(-time.Hour)))
		must(fifo.EnqueueAfter(tx, message("a"), time.Hour))
		must(fifo.EnqueueAt(tx, message("b"), hour))
		must(fifo.EnqueueAfter(tx, message("c"), 0))
	})
	wantList(t, "ready", f.values(q.PopMin), "c")
	wantList(t, "ready, FIFO", f.values(fifo.Dequeue), "c")
	now := hour.Add(time.Minute)
	f.batcher.SetNow(func() time.Time { return now })
	for _, target := range []fdbpq.Target{q, fifo} {
		got := f.apply(op(opPopMin, target), op(opPopMin, target))
		wantList(t, "after an hour", summary(make([]fdbpq.Op, 2), got), "a", "b")
	}
}
