package fdbpq_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// dueEntries is the range of a queue's time index.
func (f *fixture) dueEntries(queue string) kv.Range {
	begin, end := tuple.NewSubspace(tuple.Tuple{f.priority, queue, "t"}).Range()
	return kv.Range{Begin: begin, End: end}
}

// Versions before the time index left answers and claims without entries. A Popper finds
// them, in steps if there are many; plain pops do not look for them.
func TestLeftoversWithoutEntries(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("old")
		c := newClock(time.Now())
		c.stepping(time.Microsecond) // so that the oldest requests come first
		p := fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.fill(q, "claim", "a", "b")
		f.wantPop(p.PopMin, "claim")
		const more = fdbpq.DuePage + 10
		for range 2 + more {
			f.line(p, fdbpq.Front)
		}
		for range 3 { // "a" and "b", then "empty" for the others
			f.serve(p)
		}
		f.wantStaged(p, 0, 2+more, 2, 1)
		write(f, func(tx kv.Transaction) { tx.ClearRange(f.dueEntries("old")) })
		c.advance(fdbpq.ClaimLife)
		wantList(f.T, "plain pops", f.values(q.PopMin))

		p = fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.wantPop(p.PopMin, "a")
		f.wantPop(p.PopMin, "b")
		for range 3 {
			c.advance(fdbpq.SweepEvery)
			f.wantEmpty(p.PopMin)
		}
		f.wantStaged(p, 0, 0, 0, 1) // of the last pop that got an item
		wantEqual(f.T, "entries", f.staged(p).Due, 1)
	})
}

// An entry without its key, which a version before the time index has removed alone, is
// removed when it falls due.
func TestEntriesOfNothing(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("old")
		c := newClock(time.Now().Add(-2 * fdbpq.ClaimLife))
		p := fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.fill(q, "claim", "a")
		f.wantPop(p.PopMin, "claim")
		f.line(p, fdbpq.Front, fdbpq.Back)
		f.serve(p)
		f.serve(p)
		before := f.staged(p)
		wantEqual(f.T, "entries", before.Due, 3)
		write(f, func(tx kv.Transaction) {
			begin, end := tuple.NewSubspace(tuple.Tuple{f.priority, "old", "f"}).Range()
			tx.ClearRange(kv.Range{Begin: begin, End: end})
		})
		wantError(f.T, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
		wantEqual(f.T, "what is left", fmt.Sprintf("%+v", f.staged(p)), fmt.Sprintf("%+v", fdbpq.Staged{}))
	})
}

// An entry that this version does not know affects only its own queue, and only when that has
// too few items.
func TestUnknownThingsFallDue(t *testing.T) {
	for what, key := range map[string]tuple.Tuple{
		"another kind": {"later", 1},
		"another part": {"f", 1, make([]byte, 20)},
		"no part":      {"f"},
		"no kind":      {},
		"no text":      {5},
	} {
		t.Run(what, func(t *testing.T) {
			f := onMem(t)
			f.corrupt = true
			q := f.queue("new")
			entry := append(tuple.Tuple{f.priority, "new", "t", 7}, key...).Pack()
			f.push(q, 1, "a")
			write(f, func(tx kv.Transaction) { tx.Set(entry, []byte{}) })
			ops := []fdbpq.Op{op(opPopMin, q), op(opPopMin, f.queue("other"))}
			wantList(t, "results", summary(ops, f.apply(ops...)), "a", fdbpq.ErrEmpty.Error())
			results := f.apply(ops...)
			wantError(t, results[0].Err, fdbpq.ErrCorrupt)
			wantError(t, results[1].Err, fdbpq.ErrEmpty)
			f.wantStored(entry, []byte{})
		})
	}
}

// An item that expires while a staged pop has taken it, and that nobody collects, is gone when it comes back, with
// its unique key, whoever has found its entry of the time index without it meanwhile.
func TestStagedItemExpires(t *testing.T) {
	for name, looks := range map[string][]time.Duration{
		"both at once": {fdbpq.ClaimLife},
		"one by one":   {time.Second, fdbpq.ClaimLife},
		"early":        {0, fdbpq.ClaimLife, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onStaged(t, func(f *fixture, c *clock, p *fdbpq.Popper, q *fdbpq.PriorityQueue) {
				push := withTTL(opPushOnce(q, "", "k"), time.Second)
				f.apply(push)
				f.line(p, fdbpq.Front)
				f.serve(p)
				for _, d := range looks {
					c.advance(d)
					wantError(f.T, f.apply(op(opPeekMin, q))[0].Err, fdbpq.ErrEmpty)
					wantEqual(f.T, "length", f.apply(op(opLen, q))[0].Len, 0)
					f.check()
				}
				f.wantDuplicate("pushed again", f.apply(push)[0], nil)
			})
		})
	}
}

// An item that comes back from a staged pop before it expires does so at its time, even if a bridge whose clock is
// ahead has removed its entry of the time index.
func TestStagedItemExpiresLater(t *testing.T) {
	onStaged(t, func(f *fixture, c *clock, p *fdbpq.Popper, q *fdbpq.PriorityQueue) {
		f.apply(withTTL(opPushOnce(q, "", "k"), 2*fdbpq.ClaimLife))
		f.line(p, fdbpq.Front)
		f.serve(p)
		ahead := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
		// The entry alone falls due: the answer has a later deadline than any clock is ahead.
		for _, pair := range f.stored(f.priority) {
			if bytes.Contains(pair.Key, []byte("\x02x\x00")) && bytes.Contains(pair.Key, []byte("\x02t\x00")) {
				ahead.Clear(pair.Key)
			}
		}
		must(ahead.Commit().Get())
		c.advance(fdbpq.ClaimLife)
		wantEqual(f.T, "length", f.apply(op(opLen, q))[0].Len, 1)
		f.check()
		c.advance(fdbpq.ClaimLife)
		wantEqual(f.T, "length", f.apply(op(opLen, q))[0].Len, 0)
	})
}

// An item that comes back from a staged pop keeps its unique key, unless another item has it by then.
func TestStagedItemWithUniqueKey(t *testing.T) {
	for name, again := range map[string]bool{"kept": false, "taken": true} {
		t.Run(name, func(t *testing.T) {
			onStaged(t, func(f *fixture, c *clock, p *fdbpq.Popper, q *fdbpq.PriorityQueue) {
				push := opPushOnce(q, "", "k")
				push.Message.Value = make([]byte, 300_000)
				first := f.apply(push)[0].Item.ID
				lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease
				f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: lease.Token}) // so that it has a history
				f.line(p, fdbpq.Front)
				f.serve(p)
				holder := first
				if again {
					second := f.apply(push)[0]
					f.wantDuplicate("while it is out", second, nil)
					holder = second.Item.ID
				}
				c.advance(fdbpq.ClaimLife)
				f.apply(op(opLen, q))
				f.check()
				f.wantDuplicate("after it is back", f.apply(push)[0], &holder)
				got := f.apply(fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: first})[0]
				if got.State != fdbpq.Ready || len(got.Item.Value) != 300_000 || (got.Item.Unique == "") != again {
					f.Errorf("it came back %v with the key %q and %d bytes", got.State, got.Item.Unique, len(got.Item.Value))
				}
			})
		})
	}
}

// onStaged runs a test with a Popper on each engine, that has popped before.
func onStaged(t *testing.T, run func(*fixture, *clock, *fdbpq.Popper, *fdbpq.PriorityQueue)) {
	onEngines(t, func(f *fixture) {
		q, c := f.queue("staged"), newClock(time.Now())
		f.batcher.SetNow(c.now)
		p := fdbpq.NewPopper(f.db, q)
		c.give(p)
		f.fill(q, "claim")
		f.wantPop(p.PopMin, "claim")
		run(f, c, p, q)
	})
}
