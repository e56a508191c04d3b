package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// BenchmarkSavedMinute compares the processor time of this process for saving a minute with traffic
// in 1,000 queues, on the embedded store, with what it takes for an item that is leased and
// acknowledged, without NATS, by 128 at a time. "equal" is how many of these cost as much.
func BenchmarkSavedMinute(b *testing.B) {
	const queues, atOnce = 1000, 128
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	d := dispatch.New(dispatch.Options{
		DB: testenv.Pebble().Open(b), Keyspace: keyspace, ID: "a",
		Now: func() time.Time { return now },
		Limits: dispatch.Limits{
			Lanes: 1, MaxBatch: 1024, MaxBatchBytes: 4 << 20, MaxPending: 1 << 14,
			MaxPendingBytes: 64 << 20, RequestTimeout: time.Minute,
		},
		Warn:      func(message string, args ...any) { b.Error(message, args) },
		BatchDone: func(int) {},
	})
	var running sync.WaitGroup
	running.Go(func() { d.Run(context.Background()) })
	defer running.Wait()
	defer d.Close()

	do := func(i int, op fdbpq.Op) fdbpq.Result {
		q, err := d.Queue(subjects.Priority, fmt.Sprint("tenant-", i%queues))
		if err != nil {
			b.Error(err)
			return fdbpq.Result{}
		}
		r, err := d.Do(context.Background(), q, []fdbpq.Op{op})
		if err != nil || r[0].Err != nil {
			b.Error(err, r)
			return fdbpq.Result{}
		}
		return r[0]
	}
	each := func(n int, f func(i int)) time.Duration {
		before := processorTime(b)
		var workers sync.WaitGroup
		for w := range atOnce {
			workers.Go(func() {
				for i := w; i < n; i += atOnce {
					f(i)
				}
			})
		}
		workers.Wait()
		return processorTime(b) - before
	}

	var items, saved time.Duration
	const perQueue = 20
	for b.Loop() {
		each(perQueue*queues, func(i int) {
			do(i, fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: make([]byte, 128)}})
		})
		items += each(perQueue*queues, func(i int) {
			leased := do(i, fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Hour})
			do(i, fdbpq.Op{Kind: fdbpq.OpAck, Token: leased.Lease.Token})
		})
		now = now.Add(time.Minute)
		before := processorTime(b)
		d.SaveTrafficNow(context.Background())
		saved += processorTime(b) - before
	}

	item := items / time.Duration(b.N*perQueue*queues)
	row := saved / time.Duration(b.N)
	b.ReportMetric(float64(item.Microseconds()), "µs/lease+ack")
	b.ReportMetric(float64(row.Microseconds()), "µs/minute")
	b.ReportMetric(float64(row)/float64(item), "equal")
	b.ReportMetric(0, "ns/op")
}

// processorTime is how much this process has used so far.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
