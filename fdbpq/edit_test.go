package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A release may write the first history of a queue. What comes after it in its transaction knows that.
func TestPurgeAfterRelease(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		id := f.push(q, 1, "a")
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpRelease, Queue: q, ID: id}, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
		wantEqual(f.T, "histories", len(f.stored(f.priority)), 0)
	})
}

// The methods that change items by their ids, in a caller's transaction.
func TestEditsInCallersTransaction(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.bury(time.Now(), q, "dead")
	dead := q.DeadLetters()
	f.fill(q, "a", "b", "c")
	write(f, func(tx kv.Transaction) {
		wantError(t, q.Remove(tx, must(q.PeekMin(tx)).ID), nil)
		must(q.Move(tx, must(q.PeekMin(tx)).ID, 7))
		wantError(t, q.Release(tx, must(q.PeekMin(tx)).ID), fdbpq.ErrNotLeased)
		letter := must(dead.PeekMin(tx)).ID
		must(dead.RedriveItem(tx, letter))
		wantError(t, errOf(dead.RedriveItem(tx, letter)), fdbpq.ErrNotFound)
	})
	wantList(t, "left", f.values(q.PopMin), "c", "dead", "b")
	f.push(q, 1, "purged")
	write(f, func(tx kv.Transaction) {
		wantEqual(t, "purged", must(q.Purge(tx, fdbpq.AnyState, fdbpq.Progress{})).Done, 1)
	})
}

// To browse few items of a state among very many of another does not read those.
func TestBrowseReadsLittle(t *testing.T) {
	const few, much = 100, 3000
	f := onMem(t)
	now := time.Now()
	for _, state := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Delayed} {
		q := f.queue(state.String())
		var ops []fdbpq.Op
		for i := range few + much {
			o := opPush(q, 1, "v")
			o.Message.Headers = map[string][]string{"A": {"b"}}
			if (i%(1+much/few) == 0) == (state == fdbpq.Delayed) {
				o.Delay = time.Hour
			}
			ops = append(ops, o)
		}
		f.applyAt(now, ops...)

		for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
			n, keys := 0, 0
			counted := &spy{Database: f.db, found: func(pairs ...kv.KeyValue) { keys += len(pairs) }}
			_, err := (&fdbpq.Browse{State: state, End: end}).Walk(f.ctx, counted, q, now, func(*fdbpq.Browsed) bool { n++; return true })
			wantError(t, err, nil)
			if n != few || keys > 8*few {
				t.Errorf("%v from %d: %d items, and %d keys read", state, end, n, keys)
			}
			t.Logf("%v from %d: %d items, and %d keys read", state, end, n, keys)

			keys, n = 0, 0
			_, err = (&fdbpq.Browse{End: end}).Walk(f.ctx, counted, q, now, func(*fdbpq.Browsed) bool { n++; return true })
			wantError(t, err, nil)
			if n != few+much || keys > 3*n { // two keys each
				t.Errorf("all from %d: %d items, and %d keys read", end, n, keys)
			}
			t.Logf("all from %d: %d items, and %d keys read", end, n, keys)
		}
	}
}
