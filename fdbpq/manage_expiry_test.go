package fdbpq_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// What expires is removed, moved and purged with its entry of the time index, and moved items expire when
// they always did.
func TestManageExpiring(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		now := time.Now()
		for _, size := range []int{5, 250_000} {
			fill := func() (ready, delayed, held, leased fdbpq.ID) {
				var ids []fdbpq.ID
				for i := range 4 {
					op := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i), Message: fdbpq.Message{Value: make([]byte, size)}, TTL: 2 * time.Hour}
					if i == 3 {
						op.Delay = time.Hour
					}
					ids = append(ids, f.one(now, op).Item.ID)
				}
				f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: 3 * time.Hour})
				nak := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: 3 * time.Hour})
				f.one(now, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: nak.Lease.Token, Delay: 3 * time.Hour})
				return ids[2], ids[3], ids[1], ids[0]
			}
			ready, delayed, held, leased := fill()
			for _, id := range []fdbpq.ID{ready, delayed, held, leased} {
				if r := f.one(now, fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id}); r.Err != nil {
					f.Error(r.Err)
				}
				f.check()
			}
			fill()
			if n, _ := f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}); n != 4 {
				f.Errorf("purged %d", n)
			}
			f.check()
			ready, delayed, held, leased = fill()
			moved := map[fdbpq.ID]bool{}
			for _, id := range []fdbpq.ID{ready, delayed, held} {
				r := f.one(now, fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: id, Priority: 9})
				if r.Err != nil {
					f.Fatal(r.Err)
				}
				moved[r.Item.ID] = true
				f.check()
			}
			for id := range moved {
				r := f.one(now.Add(2*time.Hour-time.Second), fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id})
				if r.Err != nil || !r.Item.Expires.Equal(now.Add(2*time.Hour).Truncate(time.Microsecond)) || len(r.Item.Value) != size {
					f.Errorf("before it expires, at %v: %v, expires %v", now, r.Err, r.Item.Expires)
				}
			}
			for id := range moved {
				wantError(f.T, f.one(now.Add(2*time.Hour+time.Second), fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id}).Err, fdbpq.ErrNotFound)
			}
			if info := f.infoOf(q, 0); info.Leased != 1 || info.Ready+info.Delayed != 0 {
				f.Errorf("%+v", info)
			}
			f.one(now, fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: leased})
		}
	})
}
