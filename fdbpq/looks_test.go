package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
)

// infoOf returns what a Batcher says about a queue.
func (f *fixture) infoOf(q fdbpq.Target, limit int) fdbpq.Info {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q, MaxPriorities: limit})[0]
	wantError(f.T, r.Err, nil)
	return *r.Info
}

// infoPriorities is how many priorities TestInfoOfManyPriorities has, from 0, with one item each.
const infoPriorities = 30

// An info has as many priorities as it is asked for, half of them from either end, and counts the
// items in each state.
func TestInfoOfManyPriorities(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		var pushes []fdbpq.Op

		for p := range int64(infoPriorities) {
			pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: p})
		}

		f.apply(pushes...)
		f.wantPriorities(q, 0, fdbpq.Info{Ready: infoPriorities}) // other states have no counters

		leases := f.apply(leaseOf(q, fdbpq.Front), leaseOf(q, fdbpq.Front))
		nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[1].Lease.Token, Delay: time.Hour}
		f.apply(nak)
		f.wantPriorities(q, 2, fdbpq.Info{Ready: infoPriorities - 2, Leased: 1, Delayed: 1})
	})
}

// wantPriorities compares the infos of a queue that has one item of each priority from first on,
// for any limit of priorities, 0 for none.
func (f *fixture) wantPriorities(q *fdbpq.PriorityQueue, first int64, want fdbpq.Info) {
	f.Helper()
	all := int(want.Ready)

	for limit := range infoPriorities + 10 {
		got := f.infoOf(q, limit)
		n := all

		if limit > 0 {
			n = min(2*max(limit/2, 1), all)
		}

		if len(got.Priorities) != n {
			f.Errorf("limit %d: %d priorities: want %d", limit, len(got.Priorities), n)
		}

		if got.Ready != want.Ready || got.Leased != want.Leased || got.Delayed != want.Delayed ||
			got.MorePriorities != (n < all) {
			f.Errorf("limit %d: %+v", limit, got)
		}

		for i, p := range got.Priorities {
			if p.Count != 1 || i > 0 && p.Priority <= got.Priorities[i-1].Priority {
				f.Errorf("limit %d: %+v", limit, got.Priorities)
			}
		}

		last := got.Priorities[len(got.Priorities)-1]
		if got.Priorities[0].Priority != first || last.Priority != infoPriorities-1 {
			f.Errorf("limit %d: from %v to %v", limit, got.Priorities[0], last)
		}
	}
}

// one applies one operation at a time.
func (f *fixture) one(at time.Time, op fdbpq.Op) fdbpq.Result {
	f.Helper()
	return f.applyAt(at, op)[0]
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

// A rank is exact as far as counters and a bounded scan can tell, and a lower bound beyond.
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
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpRank, Queue: q, ID: id})[0]
		if r.Err != nil || r.Rank != want || r.RankAtLeast != atLeast {
			t.Errorf("rank %d, %v, %v: want %d, %v", r.Rank, r.RankAtLeast, r.Err, want, atLeast)
		}
	}

	rank(push(fdbpq.MaxRank+1, 1), fdbpq.MaxRank, false)
	rank(push(1, 1), fdbpq.MaxRank, true)      // one more item than the scan passes
	rank(push(3, 2), fdbpq.MaxRank+2+2, false) // all of priority 1 are counted, and two of its own
}

// On a nearly full disk pops succeed from the first one on, and pushes fail.
func TestPopsOnNearlyFullDisk(t *testing.T) {
	const keep = 1 << 20 // MinFreeSpace
	for _, name := range []string{"a", "a-queue-with-a-longer-name"} {
		for _, popper := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/staged=%t", name, popper), func(t *testing.T) {
				disk := vfs.NewMem()
				open := func(free uint64) kv.Database {
					disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free})
					return must(pebblekv.Open("db", pebblekv.Options{
						FS:           disk,
						MinFreeSpace: keep,
						Logger:       slog.New(slog.DiscardHandler),
					}))
				}

				roomy := open(1 << 40)
				k := must(fdbpq.NewKeyspace("p", "f", fdbpq.RawValues))
				q, fifo := must(k.PriorityQueue(name)), must(k.Queue(name))
				b := fdbpq.NewBatcher(roomy, k)

				for _, value := range []string{"1", "2", "3"} {
					pushes := []fdbpq.Op{opPush(q, 0, value), opPush(fifo, 0, value)}
					must(b.Apply(t.Context(), pushes))
				}
				wantError(t, roomy.Close(), nil)

				f := newFixtureIn(t, open(keep/2), "p", "f", fdbpq.RawValues)
				if popper {
					f.wantPop(staged.New(f.db, f.queue(name)).PopMin, "1")
					f.wantPop(staged.New(f.db, f.queue(name)).PopMax, "3")
					return
				}

				for _, want := range []string{"1", "2"} {
					for _, target := range []fdbpq.Target{f.queue(name), f.fifoQueue(name)} {
						results, err := f.batcher.Apply(f.ctx, []fdbpq.Op{op(opPopMin, target)})
						if err != nil || string(results[0].Item.Value) != want {
							t.Errorf("a pop of %q: %+v, error %v", want, results, err)
						}
					}

					_, err := f.batcher.Apply(f.ctx, []fdbpq.Op{opPush(f.queue(name), 0, "")})
					wantError(t, err, kv.ErrUnavailable)
				}
			})
		}
	}
}

// On a nearly full disk nothing that makes the store larger succeeds, whatever it clears for that:
// the parts of a large item are cleared as a range, and written again elsewhere.
func TestMovesOnNearlyFullDisk(t *testing.T) {
	const keep = 4 << 20 // MinFreeSpace
	disk := vfs.NewMem()
	open := func(free uint64) kv.Database {
		disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free})
		return must(pebblekv.Open("db", pebblekv.Options{
			FS:           disk,
			MinFreeSpace: keep,
			Logger:       slog.New(slog.DiscardHandler),
		}))
	}

	roomy := open(1 << 40)
	k := must(fdbpq.NewKeyspace("p", "f", fdbpq.RawValues))
	b := fdbpq.NewBatcher(roomy, k)
	var ids []fdbpq.ID
	for _, size := range []int{10, 1000, 89_000, 91_000, 300_000} {
		for _, headers := range []map[string][]string{nil, {"h": {"x"}}} {
			push := opPush(must(k.PriorityQueue("a")), 1, strings.Repeat("v", size))
			push.Message.Headers = headers
			ids = append(ids, must(b.Apply(t.Context(), []fdbpq.Op{push}))[0].Item.ID)
		}
	}
	wantError(t, roomy.Close(), nil)

	f := newFixtureIn(t, open(keep/2), "p", "f", fdbpq.RawValues)
	q := f.queue("a")
	for n, id := range ids {
		move := fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: id, Priority: 2}
		_, err := f.batcher.Apply(f.ctx, []fdbpq.Op{move})
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("move of item %d: %v, want %v", n, err, kv.ErrUnavailable)
		}
	}
	f.apply(op(opPopMin, q))
	f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
}

// On a nearly full disk, transactions that only remove items or put them back succeed, and those
// that push do not. A staged pop has two seconds to withdraw.
func TestShrinks(t *testing.T) { synctest.Test(t, testShrinks) }

func testShrinks(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q, fifo := f.queue("a"), f.fifoQueue("a")
	f.apply(opPush(q, 1, "1"), opPush(q, 2, "2"), opPush(q, 3, "3"), opPush(fifo, 0, "f"))

	nearlyFull := &hooked{Database: f.watched, begin: func(o kv.BeginOptions) error {
		if !o.Shrinks {
			return kv.ErrUnavailable
		}
		return nil
	}}

	f.batcher = fdbpq.NewBatcher(nearlyFull, f.Keyspace)

	// Items that come back may be larger than anything that is removed with them.
	f.abandon(faultkv.UnknownMade, op(opPopMin, q), op(opPopMin, fifo))
	wantEqual(t, "items before Settle", f.length(q), 2)
	wantError(t, f.batcher.Settle(f.ctx), nil)

	ops := []fdbpq.Op{op(opPopMin, q), op(opPopMin, fifo), op(opPeekMax, q), op(opLen, q)}
	wantList(t, "a batch with pops", summary(ops, f.apply(ops...)), "1", "f", "3", "3")

	for _, ops := range [][]fdbpq.Op{
		{opPush(q, 0, "")},
		{opPush(q, 0, ""), op(opPopMin, q)},
		{opSetConsumer(q, "a", "1"), op(opPopMin, q)},
		{op(opPopMin, q), op(opPopMax, q), opPush(fifo, 0, "")},
	} {
		_, err := f.batcher.Apply(f.ctx, ops)
		wantError(t, err, kv.ErrUnavailable)
	}
	wantError(t, fdbpq.SweepReceipts(f.ctx, nearlyFull, f.Keyspace, -time.Second), nil)
	wantEqual(t, "receipts", len(f.stored(f.priority+"-x")), 0)

	p := staged.New(nearlyFull, q)
	f.wantPop(p.PopMax, "3")

	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.watched.unknown = cancel
	f.faults.Next(faultkv.UnknownMade)

	_, err := p.PopMin(ctx)
	wantError(t, err, context.Canceled)
	if kv.MaybeCommitted(err) {
		t.Errorf("the pop was not withdrawn: %v", err)
	}
	f.wantPop(p.PopMin, "2")
}

// wantPop pops with a Popper.
func (f *fixture) wantPop(pop func(context.Context) (fdbpq.Item, error), want string) {
	f.Helper()
	item, err := pop(f.ctx)

	if err != nil || string(item.Value) != want {
		f.Errorf("popped %q (error %v), want %q", item.Value, err, want)
	}
}
