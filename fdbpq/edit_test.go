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
		wantError(f.T, errOf(do(f, func(tx kv.Transaction) (int, error) { return 0, q.Release(tx, id) })), fdbpq.ErrNotLeased)
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpRelease, Queue: q, ID: id}, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
		wantEqual(f.T, "histories", len(f.stored(f.priority)), 0)
	})
}

// Of two transactions that send the same dead letter home, one finds it gone.
func TestRedriveItemConflicts(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "a")
	token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease.Token
	f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token})
	letters, _ := f.walk(fdbpq.Browse{}, q.DeadLetters(), time.Now())
	redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: q.DeadLetters(), ID: letters[0].ID}

	f.wantConflict(true, func() { wantError(t, f.apply(redrive)[0].Err, nil) }, redrive)
	wantError(t, f.apply(redrive)[0].Err, fdbpq.ErrNotFound)
	wantError(t, errOf(do(f, func(tx kv.Transaction) (fdbpq.ID, error) { return q.DeadLetters().RedriveItem(tx, redrive.ID) })), fdbpq.ErrNotFound)
	wantList(t, "items", f.values(q.PopMin), "a")
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
