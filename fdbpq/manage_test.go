package fdbpq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// one applies one operation at a time.
func (f *fixture) one(at time.Time, op fdbpq.Op) fdbpq.Result {
	f.Helper()
	return f.applyAt(at, op)[0]
}

// threeStates returns a queue, or a FIFO queue, with a ready, a delayed and a leased item, each with
// headers and a value of the given size, and the lease.
func (f *fixture) threeStates(q fdbpq.Target, at time.Time, size int) (ready, held, lent fdbpq.ID, lease fdbpq.Lease) {
	f.Helper()
	m := fdbpq.Message{Value: make([]byte, size), Headers: map[string][]string{"Name": {"value"}}}
	var ids []fdbpq.ID
	for range 3 {
		ids = append(ids, f.one(at, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 7, Message: m}).Item.ID)
	}
	first := f.one(at, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})
	second := f.one(at, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})
	f.one(at, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: first.Lease.Token, Delay: time.Minute})
	return ids[2], ids[0], ids[1], second.Lease
}

// bothKinds runs a test with a priority queue and a FIFO queue, on every engine.
func bothKinds(t *testing.T, run func(f *fixture, q fdbpq.Target)) {
	onEngines(t, func(f *fixture) {
		run(f, f.queue("q"))
		run(f, f.fifoQueue("q"))
	})
}

func TestGet(t *testing.T) {
	bothKinds(t, func(f *fixture, q fdbpq.Target) {
		now := time.Now()
		for _, size := range []int{0, 5, 250_000} {
			ready, held, lent, lease := f.threeStates(q, now, size)
			for id, want := range map[fdbpq.ID]fdbpq.ItemState{ready: fdbpq.Ready, held: fdbpq.Delayed, lent: fdbpq.Leased} {
				r := f.one(now, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id})
				if r.Err != nil || r.State != want || r.Item.ID != id || len(r.Item.Value) != size ||
					!slices.Equal(r.Item.Headers["Name"], []string{"value"}) || r.Item.PushedAt.Sub(now).Abs() > time.Second {
					f.Errorf("%v, %v: %+.100v: want one that is %v, with %d bytes", r.State, r.Err, r.Item, want, size)
				}
			}
			later := now.Add(2 * time.Minute) // the delay is over
			if r := f.one(later, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: held}); r.State != fdbpq.Ready {
				f.Errorf("once the delay is over: %v, %v", r.State, r.Err)
			}
			f.one(later, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Token})
			wantError(f.T, f.one(later, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: lent}).Err, fdbpq.ErrNotFound)
			for range 2 {
				f.one(later, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})
			}
			wantError(f.T, f.one(later, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: ready}).Err, fdbpq.ErrNotFound)
		}
	})
}

// An id with a priority names no item of a FIFO queue, whose keys have none.
func TestIDOfOtherKind(t *testing.T) {
	f := onMem(t)
	fifo := f.fifoQueue("q")
	id := f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: fifo})[0].Item.ID
	id.Priority = 3
	for _, kind := range []fdbpq.OpKind{fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpRemove} {
		wantError(t, f.apply(fdbpq.Op{Kind: kind, Queue: fifo, ID: id})[0].Err, fdbpq.ErrNotFound)
	}
	id.Priority = 0
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpMove, Queue: fifo, ID: id, Priority: 1})[0].Err, fdbpq.ErrOp)
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpRank, Queue: fifo, ID: id, End: fdbpq.Back})[0].Err, fdbpq.ErrOp)
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: fifo, State: 9})[0].Err, fdbpq.ErrOp)
	if n := must(do(f, func(tx kv.Transaction) (int64, error) { return fifo.Len(tx) })); n != 1 {
		t.Errorf("%d items", n)
	}
}

func TestRemove(t *testing.T) {
	bothKinds(t, func(f *fixture, q fdbpq.Target) {
		now := time.Now()
		ready, held, lent, lease := f.threeStates(q, now, 250_000)
		for _, id := range []fdbpq.ID{held, lent, ready} {
			// Twice in one transaction, and once more.
			both := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id}, fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id})
			if both[0].Err != nil {
				f.Error(both[0].Err)
			}
			wantError(f.T, both[1].Err, fdbpq.ErrNotFound)
			wantError(f.T, f.one(now, fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id}).Err, fdbpq.ErrNotFound)
			f.check()
		}
		wantError(f.T, f.one(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Token}).Err, fdbpq.ErrLeaseLost)
		wantError(f.T, f.one(now.Add(2*time.Hour), fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}).Err, fdbpq.ErrEmpty)
		if info := f.infoOf(q, 0); info.Ready+info.Leased+info.Delayed != 0 || !info.NextDue.IsZero() {
			f.Errorf("after all was removed: %+v", info)
		}
	})
}

// An operation on an item sees what others of its transaction have done to it.
func TestRemoveBesideOthers(t *testing.T) {
	bothKinds(t, func(f *fixture, q fdbpq.Target) {
		now := time.Now()
		remove := func(id fdbpq.ID) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id} }
		_, held, lent, lease := f.threeStates(q, now, 10)
		r := f.applyAt(now, remove(lent), fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Token})
		wantError(f.T, r[0].Err, fdbpq.ErrNotFound)
		if r[1].Err != nil {
			f.Errorf("acknowledged beside a remove: %v", r[1].Err)
		}
		// The pop gets what is left.
		r = f.applyAt(now.Add(time.Hour), fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, remove(held), fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})
		if r[0].Err != nil || r[0].Item.ID == held || r[1].Err != nil {
			f.Errorf("popped %v, %v beside a remove of %v, %v", r[0].Item.ID, r[0].Err, held, r[1].Err)
		}
		wantError(f.T, r[2].Err, fdbpq.ErrEmpty)
	})
}

func TestMove(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		now := time.Now()
		for _, size := range []int{0, 250_000} {
			for _, priority := range []int64{7, 9, -3} {
				ready, held, lent, lease := f.threeStates(q, now, size)
				last := f.one(now, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: priority}).Item.ID
				move := func(id fdbpq.ID) fdbpq.Result {
					return f.one(now.Add(time.Second), fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: id, Priority: priority})
				}
				wantError(f.T, move(lent).Err, fdbpq.ErrLeased)
				moved, movedHeld := move(ready), move(held)
				if moved.Err != nil || movedHeld.Err != nil {
					f.Fatal(moved.Err, movedHeld.Err)
				}
				wantError(f.T, move(ready).Err, fdbpq.ErrNotFound)
				f.check()
				for old, id := range map[fdbpq.ID]fdbpq.ID{ready: moved.Item.ID, held: movedHeld.Item.ID} {
					if id.Priority != priority || id.Count <= last.Count {
						f.Errorf("%v moved to %v: want a place behind %v", old, id, last)
					}
					r := f.one(now, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id})
					if r.Err != nil || len(r.Item.Value) != size || len(r.Item.Headers) != 1 || r.Item.PushedAt.Sub(now).Abs() > time.Millisecond {
						f.Errorf("moved: %+.100v, %v", r.Item, r.Err)
					}
				}
				if r := f.one(now, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: movedHeld.Item.ID}); r.State != fdbpq.Delayed {
					f.Errorf("%v: want delayed", r.State)
				}
				f.one(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Token})
				// The delay ends when it always did, and the deliveries go on.
				later := now.Add(time.Minute + time.Millisecond)
				var order []fdbpq.ID
				for range 3 {
					r := f.one(later, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})
					order = append(order, r.Item.ID)
					want := int64(1)
					if r.Item.ID == movedHeld.Item.ID {
						want = 2
					}
					if r.Lease.Deliveries != want {
						f.Errorf("%d deliveries of %v: want %d", r.Lease.Deliveries, r.Item.ID, want)
					}
					f.one(later, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: r.Lease.Token})
				}
				if want := []fdbpq.ID{last, moved.Item.ID, movedHeld.Item.ID}; !slices.Equal(order, want) {
					f.Errorf("order %v, want %v", order, want)
				}
			}
		}
	})
}

// Of an item that came back from a lease, the deliveries are kept too.
func TestMoveKeepsHistory(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		now := time.Now()
		f.one(now, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 1})
		lease := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		f.one(now, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: lease.Lease.Token})
		// Pushed, moved twice and peeked at in one transaction.
		r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 2},
			fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: lease.Item.ID, Priority: 2},
			fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: lease.Item.ID, Priority: 3},
			fdbpq.Op{Kind: fdbpq.OpPeek, End: fdbpq.Back, Queue: q})
		wantError(f.T, r[2].Err, fdbpq.ErrNotFound)
		if r[1].Err != nil || r[3].Item.ID != r[1].Item.ID || r[1].Item.ID.Count <= r[0].Item.ID.Count {
			f.Errorf("moved to %v, %v, behind %v; peeked at %v", r[1].Item.ID, r[1].Err, r[0].Item.ID, r[3].Item.ID)
		}
		again := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.Back})
		if again.Lease.Deliveries != 2 {
			f.Errorf("%d deliveries: want 2", again.Lease.Deliveries)
		}
		wantError(f.T, f.one(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Lease.Token}).Err, fdbpq.ErrLeaseLost)
	})
}

func TestRank(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("q"), f.fifoQueue("q")
		now := time.Now()
		var pushes []fdbpq.Op
		for i := range 90 {
			pushes = append(pushes, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i%3) - 1}, fdbpq.Op{Kind: fdbpq.OpPush, Queue: fifo})
		}
		f.applyAt(now, pushes...)
		leases := []fdbpq.Result{}
		for range 5 {
			leases = append(leases, f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}))
		}
		for _, target := range []fdbpq.Target{q, fifo} {
			ids := f.order(target)
			for n, id := range ids {
				if r := f.one(now, fdbpq.Op{Kind: fdbpq.OpRank, Queue: target, ID: id}); r.Err != nil || r.Rank != int64(n) || r.RankAtLeast {
					f.Fatalf("rank %d, %v, %v: want %d", r.Rank, r.RankAtLeast, r.Err, n)
				}
				if target == fdbpq.Target(fifo) {
					continue
				}
				want := int64(len(ids) - n - 1)
				if r := f.one(now, fdbpq.Op{Kind: fdbpq.OpRank, Queue: target, ID: id, End: fdbpq.Back}); r.Err != nil || r.Rank != want || r.RankAtLeast {
					f.Fatalf("rank %d, %v, %v from the back: want %d", r.Rank, r.RankAtLeast, r.Err, want)
				}
			}
		}
		// Held items rank as if they were ready, among those that are.
		for _, lease := range leases {
			if r := f.one(now, fdbpq.Op{Kind: fdbpq.OpRank, Queue: q, ID: lease.Item.ID}); r.Rank != 0 || r.Err != nil {
				f.Errorf("rank %d, %v of a held item: want 0", r.Rank, r.Err)
			}
		}
		f.one(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: leases[0].Lease.Token})
		wantError(f.T, f.one(now, fdbpq.Op{Kind: fdbpq.OpRank, Queue: q, ID: leases[0].Item.ID}).Err, fdbpq.ErrNotFound)
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
