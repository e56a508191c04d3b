//go:build unix

package pebblekv

import (
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
	benchBatch      = 60 // pushes and pops of one transaction
)

// bench is a priority queue as the queues keep theirs, in few words.
type bench struct {
	b       *testing.B
	db      *DB
	rng     *rand.Rand
	next    uint64 // transaction, and part of its items' keys
	pending []kv.Future[struct{}]
}

// drain waits until no more than left commits are under way.
func (q *bench) drain(left int) {
	for ; len(q.pending) > left; q.pending = q.pending[1:] {
		must(q.b, errOf(q.pending[0].Get()))
	}
}

func (q *bench) random(n int) []byte {
	p := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], q.rng.Uint64())
	}
	return p
}

const benchPrefix = "\x02pq\x00\x02queue\x00\x02"

func itemKey(priority int, rest ...byte) []byte {
	return append([]byte(benchPrefix+"i\x00\x15"+string(rune(priority))), rest...)
}

func counterKey(priority int) []byte {
	return []byte(benchPrefix + "n\x00\x15" + string(rune(priority)))
}

func receiptKey(n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(benchPrefix+"x\x00"), n)
}

// step is one transaction with so many pushes and pops.
func (q *bench) step(pushes, pops int) {
	tx := begin(q.b, q.db)
	must(q.b, errOf(tx.Get(receiptKey(q.next)).Get()))
	for p := range min(pushes, benchPriorities) { // what the last item of each priority is
		r := kv.Range{Begin: itemKey(p), End: itemKey(p + 1)}
		must(q.b, errOf(tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: 1, Reverse: true}).Get()))
	}
	for i := range pushes {
		key := binary.BigEndian.AppendUint64(itemKey(q.rng.IntN(benchPriorities)), q.next<<20+uint64(i))
		tx.Set(append(key, q.random(16)...), q.random(128))
	}
	items, err := tx.GetRange(kv.Range{Begin: itemKey(0), End: itemKey(benchPriorities)}, kv.RangeOptions{Limit: max(pops, 1)}).Get()
	must(q.b, err)
	for _, item := range items[:min(pops, len(items))] {
		tx.Clear(item.Key)
	}
	for p := range benchPriorities {
		tx.Add(counterKey(p), int64((pushes-pops)/benchPriorities))
	}

	tx.Clear(receiptKey(q.next))
	q.next++
	tx.Set(receiptKey(q.next), nil)
	q.pending = append(q.pending, tx.Commit())
	q.drain(4)
}

// BenchmarkTransaction is a transaction of the usual shape: a lane's batch of pushes and pops.
func BenchmarkTransaction(b *testing.B) {
	for _, queued := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("queued=%d", queued), func(b *testing.B) {
			q := &bench{b: b, db: openTestDir(b, b.TempDir(), Options{}), rng: rand.New(rand.NewPCG(1, 2))}
			for range queued / 1000 {
				q.step(1000, 0)
			}
			q.drain(0)
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
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
