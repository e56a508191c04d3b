//go:build unix

package pebblekv

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	benchPriorities = 10
	benchValueSize  = 128
	benchBatch      = 60 // pushes and pops of one transaction
	benchAhead      = 4  // commits whose sync is not waited for
)

// bench is a priority queue as the queues keep theirs, in few words.
type bench struct {
	b       *testing.B
	db      *DB
	rng     *rand.Rand
	next    uint64 // receipt
	clock   uint64 // orders the random parts of the items
	pending []kv.Future[struct{}]
	queued  int
}

// newBench opens a new store that is closed at the end.
func newBench(b *testing.B) *bench {
	db, err := Open(b.TempDir(), Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	q := &bench{b: b, db: db, rng: rand.New(rand.NewPCG(1, 2))}
	b.Cleanup(func() {
		q.drain(0)
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return q
}

func (q *bench) begin() kv.Transaction {
	tx, err := q.db.Begin(context.Background(), kv.BeginOptions{})
	if err != nil {
		q.b.Fatal(err)
	}
	return tx
}

func (q *bench) commit(tx kv.Transaction) {
	q.pending = append(q.pending, tx.Commit())
	q.drain(benchAhead)
}

// drain waits until no more than left commits are under way.
func (q *bench) drain(left int) {
	for len(q.pending) > left {
		if _, err := q.pending[0].Get(); err != nil {
			q.b.Fatal(err)
		}
		q.pending = q.pending[1:]
	}
}

func (q *bench) random(n int) []byte {
	p := make([]byte, (n+7)/8*8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], q.rng.Uint64())
	}
	return p[:n]
}

const benchPrefix = "\x02pq\x00\x02queue\x00\x02"

func itemKey(priority int, count uint64, random []byte) []byte {
	key := append([]byte(benchPrefix+"i\x00"), 0x15, byte(priority), 0x1c)
	key = binary.BigEndian.AppendUint64(key, count)
	return append(append(append(key, 1), random...), 0)
}

func itemRange(from, to int) kv.Range {
	return kv.Range{Begin: itemKey(from, 0, nil)[:len(benchPrefix)+4], End: itemKey(to, 0, nil)[:len(benchPrefix)+4]}
}

func counterKey(priority int) []byte {
	return append([]byte(benchPrefix+"n\x00"), 0x15, byte(priority))
}

func receiptKey(n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(benchPrefix+"x\x00"), n)
}

// step is one transaction with n pushes and up to n pops.
func (q *bench) step(pushes, pops int) {
	tx := q.begin()
	if _, err := tx.Get(receiptKey(q.next)).Get(); err != nil {
		q.b.Fatal(err)
	}
	if pushes > 0 {
		q.push(tx, pushes)
	}
	if pops > 0 {
		q.pop(tx, pops)
	}

	tx.Clear(receiptKey(q.next))
	q.next++
	tx.Set(receiptKey(q.next), nil)
	q.commit(tx)
}

func (q *bench) push(tx kv.Transaction, n int) {
	var counts [benchPriorities]uint64
	for p := range counts {
		last, err := tx.Snapshot().GetRange(itemRange(p, p+1), kv.RangeOptions{Limit: 1, Reverse: true}).Get()
		if err != nil {
			q.b.Fatal(err)
		}
		if len(last) == 1 {
			counts[p] = binary.BigEndian.Uint64(last[0].Key[len(benchPrefix)+5:]) + 1
		}
	}

	for range n {
		p := q.rng.IntN(benchPriorities)
		q.clock++
		random := q.random(20)
		binary.BigEndian.PutUint64(random, q.clock)
		tx.Set(itemKey(p, counts[p], random), q.random(benchValueSize))
	}

	for p := range benchPriorities {
		tx.Add(counterKey(p), int64(n/benchPriorities))
	}
	q.queued += n
}

func (q *bench) pop(tx kv.Transaction, n int) {
	items, err := tx.GetRange(itemRange(0, benchPriorities), kv.RangeOptions{Limit: n}).Get()
	if err != nil {
		q.b.Fatal(err)
	}
	for _, item := range items {
		tx.Clear(item.Key)
	}
	for p := range benchPriorities {
		tx.Add(counterKey(p), -int64(n/benchPriorities))
	}
	q.queued -= len(items)
}

func (q *bench) fill(n int) {
	for q.queued < n {
		q.step(min(1000, n-q.queued), 0)
	}
	q.drain(0)
}

// BenchmarkTransaction is a transaction of the usual shape: a lane's batch of pushes and pops.
func BenchmarkTransaction(b *testing.B) {
	for _, queued := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("queued=%d", queued), func(b *testing.B) {
			q := newBench(b)
			q.fill(queued)
			b.ReportAllocs()
			used := cpuTime(b)
			for b.Loop() {
				q.step(benchBatch, benchBatch)
			}
			q.drain(0)
			b.ReportMetric(float64((cpuTime(b)-used).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// cpuTime is what the process has used so far, flushes and compactions included.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
