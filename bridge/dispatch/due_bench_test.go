package dispatch

import (
	"context"
	"flag"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
)

var dueItems = flag.Int("due", 100_000, "how many items fall due together in BenchmarkMuchFallsDue")

// BenchmarkMuchFallsDue measures how a queue is served while very much of it falls due: how long the
// first pop takes, how many pops there are in a second meanwhile, which fail, and when all is back.
func BenchmarkMuchFallsDue(b *testing.B) {
	for _, store := range slices.Sorted(maps.Keys(dueStores)) {
		for _, what := range []string{"leases", "expiries", "deaths"} {
			b.Run(store+"/"+what, func(b *testing.B) {
				for b.Loop() {
					db, err := dueStores[store](b)
					must(b, err)
					measureDue(b, db, what, *dueItems)
				}
			})
		}
	}
}

// dueStores opens an empty store of each kind. With the build tag fdb, FoundationDB is among them.
var dueStores = map[string]func(*testing.B) (kv.Database, error){
	"memkv":    func(*testing.B) (kv.Database, error) { return memkv.New(memkv.Options{}), nil },
	"pebblekv": func(b *testing.B) (kv.Database, error) { return pebblekv.Open(b.TempDir(), pebblekv.Options{}) },
}

func measureDue(b *testing.B, db kv.Database, what string, n int) {
	b.StopTimer()
	defer db.Close()
	var ahead atomic.Int64
	o := testOptions(b, db)
	o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	d := New(o)
	q, err := d.Queue(subjects.Priority, "jobs")
	must(b, err)
	batcher := fdbpq.NewBatcher(db, o.Keyspace)
	apply := func(ops ...fdbpq.Op) {
		results, err := batcher.Apply(b.Context(), ops)
		must(b, err)
		for i := range results {
			if results[i].Err != nil {
				b.Fatal(results[i].Err)
			}
		}
	}
	value := make([]byte, 100)
	if what == "deaths" {
		apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q.Target, Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 1 }})
	}
	for done := 0; done < n; done += 1000 {
		var ops []fdbpq.Op
		for range 1000 {
			op := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q.Target, Priority: 1, Message: fdbpq.Message{Value: value}}
			if what == "expiries" {
				op.TTL = time.Hour
			}
			ops = append(ops, op)
		}
		apply(ops...)
		if what != "expiries" {
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpLease, Queue: q.Target, Lease: time.Hour}
			}
			apply(ops...)
		}
	}
	const live = 20_000
	for range live / 1000 {
		var ops []fdbpq.Op
		for range 1000 {
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q.Target, Priority: 2, Message: fdbpq.Message{Value: value}})
		}
		apply(ops...)
	}

	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { d.Run(ctx) })
	running.Go(func() { d.Sweeper().Run(ctx) })
	defer func() {
		d.Close()
		cancel()
		running.Wait()
	}()
	ahead.Store(int64(2 * time.Hour))
	b.StartTimer()

	// One pop after the other, until nothing more is due.
	began := time.Now()
	var first, longest time.Duration
	pops, failed := 0, 0
	left := func() bool {
		due, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]fdbpq.Ahead, error) {
			return fdbpq.ReadAhead(r, []fdbpq.Target{q.Target})
		})
		return err != nil || !due[0].Due.IsZero()
	}
	for pops%64 != 0 || left() {
		at := time.Now()
		results, err := d.Do(b.Context(), q, []fdbpq.Op{{Kind: fdbpq.OpPop}})
		took := time.Since(at)
		if err == nil {
			err = results[0].Err
		}
		if err != nil {
			if failed++; failed < 3 {
				b.Log(err)
			}
			continue
		}
		if pops++; pops == 1 {
			first = time.Since(began)
		}
		longest = max(longest, took)
	}
	all := time.Since(began)
	b.ReportMetric(first.Seconds(), "first-s")
	b.ReportMetric(longest.Seconds(), "longest-s")
	b.ReportMetric(float64(pops)/all.Seconds(), "pops/s")
	b.ReportMetric(float64(failed), "failed")
	b.ReportMetric(all.Seconds(), "all-back-s")
}
