package fdbpq_test

import (
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// blockFront has a search needed for each pop: it fills the front with items of a group that is at its limit.
func (f *fixture) blockFront(q fdbpq.Target) {
	f.Helper()
	f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
	f.pushGroup(q, "blocked", 100, 1)
	wantError(f.T, f.apply(leaseOf(q, fdbpq.Front))[0].Err, nil)
}

// A group that had no item when a search read which groups there are gets one before the pop commits, and somebody sees it
// beside the item that is being popped. Then the pop has to begin again.
func TestSearchIsLinearizable(t *testing.T) {
	for _, group := range []string{"a", "b", "c", "new"} { // before the others by its hash, between them, after them
		t.Run(group, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("q")
			f.blockFront(q)
			f.apply(inGroup(opPush(q, 9, "last"), "there"))

			var seen []fdbpq.Result
			b := fdbpq.NewBatcher(&hooked{Database: f.db, beforeCommit: func() {
				if seen == nil {
					f.apply(inGroup(opPush(q, 5, "first"), group))
					seen = f.apply(op(opPeekMax, q))
				}
			}}, f.Keyspace)
			r := must(b.Apply(f.ctx, []fdbpq.Op{op(opPopMin, q)}))[0]
			wantError(t, r.Err, nil)
			if got := string(r.Item.Value); got != "first" {
				t.Errorf("popped %q, although %q was before it and both were seen", got, "first")
			}
			wantEqual(t, "seen", string(seen[0].Item.Value), "last")
		})
	}
}

// Searches from both ends may meet the same row of an item that another program took. It is removed, and counted, once.
func TestSearchesMissOnce(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.blockFront(q)
		for i := range 100 { // from the back, too
			f.apply(inGroup(opPush(q, 99, fmt.Sprint("blocked-", i)), "blocked"))
		}
		f.apply(inGroup(opPush(q, 5, "first"), "a"), inGroup(opPush(q, 6, "taken"), "b"), inGroup(opPush(q, 7, "last"), "c"))
		f.apply(inGroup(opPush(q, 8, "gone"), "b"))
		f.takeAsRecipe("taken")
		f.takeAsRecipe("gone")
		f.corrupt = true // counters have the items that the other program took

		results := f.apply(op(opPopMin, q), op(opPopMax, q), op(opPopMin, q), op(opPopMax, q))
		wantList(f.T, "popped", summary(make([]fdbpq.Op, 2), results[:2]), "first", "last")
		wantError(f.T, results[2].Err, fdbpq.ErrEmpty)
		for _, p := range []int64{6, 8} {
			if n := f.groupReady(q, "b", p); n != 0 {
				f.Errorf("%d items of the group are counted at %d", n, p)
			}
		}
	})
}

// groupReady is how many items of a group are counted as ready at a priority.
func (f *fixture) groupReady(q fdbpq.Target, group string, priority int64) int64 {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) (int64, error) {
		return state.ReadCounter(r.Get(q.Layout().GroupReadyKey(codec.HashGroup(group), priority)))
	}))
}

// The order of a group depends on the keys of its items alone. An earlier version that gives an item back writes no key of a group,
// so the counter is too low from then on.
func TestGroupOrderWithWrongCounter(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 5, 1)
		f.corrupt = true
		write(f, func(tx kv.Transaction) { tx.Add(q.Layout().GroupReadyKey(codec.HashGroup("a"), 1), -5) })
		f.apply(inGroup(opPush(q, 1, "a6"), "a"))
		f.apply(inGroup(opPush(q, 1, "a7"), "a"))
		wantList(f.T, "popped", f.popGroups(q, 4), "a1", "a2", "a3", "a4")
		f.apply(inGroup(opPush(q, 1, "a8"), "a"))
		wantList(f.T, "popped", f.popGroups(q, 4), "a5", "a6", "a7", "a8")
	})
}
