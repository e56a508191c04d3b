package fdbpq_test

import (
	"errors"
	"fmt"
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

// The methods of the two kinds of queues, and what they say of themselves in a caller's transaction.
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
	for _, info := range []func(kv.Reader) (fdbpq.Info, error){q.Info, fifo.Info} {
		got := must(do(f, func(tx kv.Transaction) (fdbpq.Info, error) { return info(tx) }))
		wantEqual(t, "ready and delayed", fmt.Sprint(got.Ready, got.Delayed), "1 2")
	}
	wantList(t, "ready", f.values(q.PopMin), "c")
	wantList(t, "ready, FIFO", f.values(fifo.Dequeue), "c")
	now := hour.Add(time.Minute)
	f.batcher.SetNow(func() time.Time { return now })
	for _, target := range []fdbpq.Target{q, fifo} {
		got := f.apply(op(opPopMin, target), op(opPopMin, target))
		wantList(t, "after an hour", summary(make([]fdbpq.Op, 2), got), "a", "b")
	}
}

// withTTL is a push of an item that expires.
func withTTL(push fdbpq.Op, ttl time.Duration) fdbpq.Op {
	push.TTL = ttl
	return push
}

// An item is not both popped and expired, if the clock of one who pops is ahead.
func TestExpiryConflicts(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.apply(withTTL(opPush(q, 1, "x"), time.Hour))
	tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
	wantError(t, must(fdbpq.Apply(tx, []fdbpq.Op{op(opPopMin, q)}, time.Now().Add(time.Hour)))[0].Err, fdbpq.ErrEmpty)
	wantError(t, f.apply(op(opPopMin, q))[0].Err, nil)
	wantError(t, errOf(tx.Commit().Get()), kv.ErrConflict)
}

// errOf is the error of a function with another result.
func errOf[V any](_ V, err error) error { return err }

// An entry of the time index whose item another program has taken is removed when it is due, beside others.
func TestExpiryOfATakenItem(t *testing.T) {
	f := onMem(t)
	f.corrupt = true // that program leaves the rest behind
	clock := f.setClock()
	q := f.queue("jobs")
	f.apply(many(40, func(int) fdbpq.Op { return withTTL(opPush(q, 1, "x"), time.Second) })...)
	write(f, func(tx kv.Transaction) {
		for n, pair := range must(tx.GetRange(everythingIn(f, "jobs", "i"), kv.RangeOptions{}).Get()) {
			if n%4 == 0 {
				tx.Clear(pair.Key)
			}
		}
	})
	clock.advance(time.Second)
	wantError(t, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
	wantEqual(t, "expired", f.batcher.Removed().Expired, 30)
	for _, pair := range f.stored(f.priority) {
		if strings.Contains(string(pair.Key), "\x02t\x00") {
			t.Errorf("left in the time index: %x", pair.Key)
		}
	}
}

// Items that have expired together take a few reads, however many they are: in the pops that meet them, in sweeps, and
// in peeks that step over them.
func TestReadsOfExpired(t *testing.T) {
	for _, test := range []struct {
		op    fdbpq.Op
		n     int // items that expire, in as many transactions as the operation takes
		reads int // of each of them
	}{
		{opPopMin, 2000, 40}, {opPopMax, 2000, 40}, {fdbpq.Op{Kind: fdbpq.OpSweep}, 1500, 10}, {opPeekMin, 2000, 40},
	} {
		f := newRoundsFixture(t, 1, false)
		clock := f.setClock()
		for done := 0; done < test.n; done += 500 {
			f.batch(many(500, func(i int) fdbpq.Op { return withTTL(opPush(nil, int64(i/300), "expires"), time.Second) }))
		}
		clock.advance(time.Second)
		f.store.Take()
		left := f.batch([]fdbpq.Op{test.op})[0].Err
		for _, cost := range f.store.Take() {
			if cost.Reads > test.reads {
				t.Errorf("%v took %d reads in %d rounds: want at most %d reads", test.op.Kind, cost.Reads, cost.Rounds, test.reads)
			}
		}
		if left != nil && !errors.Is(left, fdbpq.ErrEmpty) {
			t.Errorf("%v: %v", test.op.Kind, left)
		}
	}
}

// many returns n operations, or other things.
func many[V any](n int, make func(i int) V) (list []V) {
	for i := range n {
		list = append(list, make(i))
	}
	return list
}
