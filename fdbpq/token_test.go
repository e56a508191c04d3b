package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// Whoever knows an item's id, or had it leased before, cannot compute a token that holds. Each
// guess here is one that held as long as fences grew by 1.
func TestTokensCannotBeComputed(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		id, now := f.push(q, 1, "a"), time.Now()
		lease := func() fdbpq.Lease {
			f.Helper()
			r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})[0]
			if r.Err != nil {
				f.Fatal(r.Err)
			}
			return r.Lease
		}
		guess := func(what string, from int64) {
			f.Helper()
			for fence := from; fence < from+4; fence++ {
				token := fdbpq.Token{ID: id, Fence: fence}
				if r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpExtend, Queue: q, Token: token})[0]; r.Err == nil {
					f.Fatalf("%s: the fence %d can be computed, and holds", what, fence)
				}
			}
		}

		first := lease()
		guess("leased", 1)

		nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: first.Token}
		if r := f.applyAt(now, nak)[0]; r.Err != nil {
			f.Fatal(r.Err)
		}
		guess("given back", first.Token.Fence+1)

		if second := lease(); second.Deliveries != 2 {
			f.Errorf("delivery %d: want 2", second.Deliveries)
		}
		guess("leased again", first.Token.Fence+1)
	})
}
