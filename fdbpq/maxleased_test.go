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
