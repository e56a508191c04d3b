package fdbpq_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// An item that is pushed with a delay is delayed until then, hides nothing meanwhile, and comes in
// at its place, before what was pushed after it.
func TestDelayedPush(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			headers := withDelay(opPush(q, 1, "headers"), time.Second)
			headers.Message.Headers = map[string][]string{"A": {"b"}}
			long := withDelay(opPush(q, 1, strings.Repeat("long", 50_000)), time.Second)
			results := f.apply(opPush(q, 1, "first"), headers, long, opPush(q, 1, "last"))
			for i, delayed := range []bool{false, true, true, false} {
				due := time.Time{}
				if delayed {
					due = clock.now().Add(time.Second).Truncate(time.Microsecond)
				}
				if r := results[i]; r.Err != nil || !r.NextDue.Equal(due) || r.Item.PushedAt.IsZero() {
					f.Errorf("push %d: %+v, want it due at %v", i, r, due)
				}
			}
			info := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q})[0].Info
			wantEqual(f.T, "states", []int64{info.Ready, info.Delayed, info.Leased}, []int64{2, 2, 0})
			got := f.apply(op(opPopMin, q), op(opPopMin, q), waiting(op(opPopMin, q)))
			wantList(f.T, "at first", summary(make([]fdbpq.Op, 3), got), "first", "last", fdbpq.ErrEmpty.Error())
			if !got[2].NextDue.Equal(results[1].NextDue) {
				f.Errorf("next due %v, want %v", got[2].NextDue, results[1].NextDue)
			}
			f.apply(opPush(q, 1, "after"))
			clock.advance(time.Second - time.Microsecond)
			wantEqual(f.T, "length, a moment before", f.apply(op(opLen, q))[0].Len, 1)
			clock.advance(time.Microsecond)
			wantEqual(f.T, "length when due", f.apply(op(opLen, q))[0].Len, 3)

			lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
			if lease.Lease.Deliveries != 1 || string(lease.Item.Value) != "headers" || lease.Item.Headers["A"][0] != "b" || lease.Item.ID != results[1].Item.ID {
				f.Errorf("leased %+v, %+v, %v", lease.Item, lease.Lease, lease.Err)
			}
			got = f.apply(op(opPopMin, q), op(opPopMin, q), op(opPopMin, q), fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Lease.Token})
			if !bytes.Equal(got[0].Item.Value, long.Message.Value) || string(got[1].Item.Value) != "after" || got[3].Err != nil {
				f.Errorf("popped %.20q, then %q, %v", got[0].Item.Value, got[1].Item.Value, got[3].Err)
			}
			wantError(f.T, got[2].Err, fdbpq.ErrEmpty)
		}
		for _, root := range []string{f.priority, f.fifo} {
			if left := f.stored(root); len(left) > 0 {
				f.Errorf("left behind in %q: %q", root, left)
			}
		}
	})
}

// Restored after a pop, an item that was delayed is at its place, and still was never leased.
func TestDelayedPushRestored(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		q := f.queue("jobs")
		f.apply(withDelay(opPush(q, 1, "delayed"), time.Second))
		clock.advance(time.Second)
		popped := f.apply(op(opPopMin, q), opPush(q, 1, "later"))[0]
		f.apply(fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &popped.Item})
		leased := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
		if string(leased.Item.Value) != "delayed" || leased.Lease.Deliveries != 1 || leased.Item.ID != popped.Item.ID {
			f.Errorf("leased %q with %+v, %v", leased.Item.Value, leased.Lease, leased.Err)
		}
	})
}

// Nobody can have a token for an item that was never leased, so a token made up for one is not
// good for anything, whether the item is delayed or has come in.
func TestMadeUpTokenOfDelayedPush(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		q := f.queue("jobs")
		id := f.apply(withDelay(opPush(q, 1, "x"), time.Second))[0].Item.ID
		for range 2 {
			for fence := range int64(3) {
				token := fdbpq.Token{ID: id, Fence: fence}
				for _, kind := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend, fdbpq.OpTerm} {
					wantError(f.T, f.apply(fdbpq.Op{Kind: kind, Queue: q, Token: token})[0].Err, fdbpq.ErrLeaseLost)
				}
			}
			clock.advance(time.Second)
			wantEqual(f.T, "ready", f.apply(op(opLen, q))[0].Len, 1)
		}
	})
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

// Bad delays are refused with what would be right, alone and in groups, and push nothing.
func TestBadDelays(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	for name, bad := range map[string]fdbpq.Op{
		"negative":  {Delay: -1},
		"backoff":   {Delay: fdbpq.Backoff},
		"long":      {Delay: fdbpq.MaxDelay + 1},
		"both":      {Delay: 1, At: time.Now()},
		"far times": {At: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		bad.Kind, bad.Queue = fdbpq.OpPush, q
		results := f.apply(append(grouped(opPush(q, 1, "a"), bad, opPush(q, 1, "b")), bad)...)
		for i, r := range results {
			if !errors.Is(r.Err, fdbpq.ErrOp) || !strings.Contains(r.Err.Error(), ": want ") {
				f.Errorf("%s, %d: %v", name, i, r.Err)
			}
		}
	}
	wantEqual(f.T, "stored", len(f.stored(f.priority)), 0)
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
