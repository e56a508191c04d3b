package fdbpq_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func maxLeased(n int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.MaxLeased = n }
}

// Leases beyond max_leased are refused until others end, in the same transaction too; plain pops
// are not. One that waits learns when a lease is over.
func TestMaxLeased(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.Now()
		q := f.queue("jobs")
		for range 10 {
			f.push(q, 1, "a")
		}
		f.configure(q, maxLeased(2))
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
		outcomes := func(what, want string, ops ...fdbpq.Op) []fdbpq.Result {
			f.Helper()
			got := ""
			results := f.applyAt(now, ops...)
			for _, r := range results {
				switch {
				case r.Err == nil:
					got += "+"
				case errors.Is(r.Err, fdbpq.ErrMaxLeased):
					got += "-"
				default:
					f.Error(r.Err)
				}
			}
			wantEqual(f.T, what, got, want)
			return results
		}
		settle := func(kind fdbpq.OpKind, r fdbpq.Result) fdbpq.Op {
			return fdbpq.Op{Kind: kind, Queue: q, Token: r.Lease.Token}
		}
		leased := outcomes("leases", "++-+", lease, lease, lease, op(opPopMin, q))
		r := outcomes("one that waits", "-", waiting(lease))
		if !r[0].NextDue.Equal(leased[0].Lease.Until) {
			f.Errorf("next due %v, want %v", r[0].NextDue, leased[0].Lease.Until)
		}
		next := lease
		next.Follows = true
		r = outcomes("the next", "++-", settle(fdbpq.OpAck, leased[0]), next, lease)
		if !r[0].Freed {
			f.Error("an acknowledgement does not say that it has freed a place")
		}
		r = outcomes("the next, though another came first", "-++", lease, settle(fdbpq.OpAck, r[1]), next)
		outcomes("nak and term", "++++-", settle(fdbpq.OpNak, leased[1]), settle(fdbpq.OpTerm, r[2]), lease, lease, lease)
		now = now.Add(time.Minute)
		outcomes("over", "++--", lease, next, next, lease)
		f.configure(q, maxLeased(3))
		outcomes("raised", "+-", lease, lease)
		f.configure(q, maxLeased(1))
		outcomes("lowered", "-", lease)
		f.configure(q, maxLeased(0))
		r = outcomes("no limit", "++", lease, lease)
		if r = outcomes("ack", "+", settle(fdbpq.OpAck, r[0])); r[0].Freed {
			f.Error("an acknowledgement without a limit says that it has freed a place")
		}
	})
}

// Many lease at the same time: never more than the limit have a lease.
func TestMaxLeasedRaces(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		const limit, workers, each = 2, 5, 20
		for n := range int64(workers * each) {
			f.push(q, n, "x")
		}
		f.configure(q, maxLeased(limit))
		var refused atomic.Int64
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				b := fdbpq.NewBatcher(f.db, f.Keyspace)
				for done := 0; done < each && f.ctx.Err() == nil; {
					lease, err := b.Apply(f.ctx, []fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.End(w % 2), Lease: time.Hour}})
					if err != nil {
						f.Error(err)
						return
					}
					if errors.Is(lease[0].Err, fdbpq.ErrMaxLeased) {
						refused.Add(1)
						continue
					}
					wantError(f.T, lease[0].Err, nil)
					info, err := kv.ReadTransact(f.ctx, f.db, q.Info)
					if err != nil || info.Leased > limit || info.Leased < 1 {
						f.Errorf("%d leases at a time, %v", info.Leased, err)
					}
					ack, err := b.Apply(f.ctx, []fdbpq.Op{{Kind: fdbpq.OpAck, Queue: q, Token: lease[0].Lease.Token}})
					if err != nil || ack[0].Err != nil {
						f.Error(err, ack)
					}
					done++
				}
			})
		}
		wg.Wait()
		wantEqual(f.T, "left", f.length(q), int64(0))
		f.Logf("%d leases were refused", refused.Load())
	})
}
