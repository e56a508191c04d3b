package fdbpq_test

import (
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
