package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// BenchmarkAttempts measures what the setting trail takes of the processor, on the embedded store,
// in batches of 64 jobs with values of 128 bytes: jobs that are leased and acknowledged, jobs that
// fail 8 times with reasons, and jobs that are acknowledged with a successor. Queues with and
// without the setting take turns; the ratio is that of their medians, and the time is without it.
// docs/measured.md has the figures. An iteration is one turn of each.
func BenchmarkAttempts(b *testing.B) {
	for _, bench := range []struct {
		name string
		run  func(m *measuredTrail)
	}{
		{"acks", func(m *measuredTrail) { m.ack(0) }},
		{"8 naks of 100", func(m *measuredTrail) { m.fail(8, 100) }},
		{"8 naks of 512", func(m *measuredTrail) { m.fail(8, 512) }},
		{"successors", func(m *measuredTrail) { m.ack(1) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			with, without := newMeasuredTrail(b, 8), newMeasuredTrail(b, 0)
			var on, off []time.Duration
			for b.Loop() {
				on, off = append(on, with.turn(bench.run)), append(off, without.turn(bench.run))
			}
			slices.Sort(on)
			slices.Sort(off)
			most, least := on[len(on)/2], off[len(off)/2]
			b.ReportMetric(100*float64(most)/float64(least), "cpu-ratio-%")
			b.ReportMetric(float64(least.Microseconds())/measuredBatch/measuredBatches, "us/job")
		})
	}
}

// measuredTrail is a queue with some value of the setting trail, in a store of its own.
type measuredTrail struct {
	*testing.B
	batcher *fdbpq.Batcher
	q, next fdbpq.Target
}

// measuredBatch is how many jobs are in a batch, and measuredBatches how many batches in a turn.
const measuredBatch, measuredBatches = 64, 5

func newMeasuredTrail(b *testing.B, most int64) *measuredTrail {
	db := must(pebblekv.Open(b.TempDir(), pebblekv.Options{MinFreeSpace: -1}))
	b.Cleanup(func() { _ = db.Close() })
	k := must(fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues))
	m := &measuredTrail{
		B: b, batcher: fdbpq.NewBatcher(db, k),
		q: must(k.PriorityQueue("jobs")), next: must(k.PriorityQueue("next")),
	}
	m.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: m.q, Configure: func(s *fdbpq.Settings) {
		s.Trail, s.Next = most, []string{"next"}
	}})
	return m
}

func (m *measuredTrail) apply(ops ...fdbpq.Op) []fdbpq.Result {
	m.Helper()
	results, err := m.batcher.Apply(m.Context(), ops)
	if err != nil {
		m.Fatal(err)
	}
	return results
}

// turn pushes jobs, and returns how much processor time it takes to do something with them.
func (m *measuredTrail) turn(run func(m *measuredTrail)) (cpu time.Duration) {
	for range measuredBatches {
		push := opPush(m.q, 1, strings.Repeat("v", 128))
		m.apply(slices.Repeat([]fdbpq.Op{push}, measuredBatch)...)
		begun := processorTime()
		run(m)
		cpu += processorTime() - begun
		for _, q := range []fdbpq.Target{m.q, m.next} {
			m.apply(slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, measuredBatch)...)
		}
	}
	return cpu
}

// lease leases a batch of jobs as a worker with a name, and ends each lease in some way.
func (m *measuredTrail) lease(end fdbpq.Op) {
	lease := fdbpq.Op{
		Kind: fdbpq.OpLease, Queue: m.q, Lease: time.Minute, Holder: "worker-17 pid 4711",
	}
	leased := m.apply(slices.Repeat([]fdbpq.Op{lease}, measuredBatch)...)
	ends := slices.Repeat([]fdbpq.Op{op(end, m.q)}, measuredBatch)
	for i := range ends {
		ends[i].Token = leased[i].Lease.Token
	}
	for _, r := range m.apply(ends...) {
		if r.Err != nil {
			m.Fatal(r.Err)
		}
	}
}

// ack leases and acknowledges a batch of jobs, each with so many successors.
func (m *measuredTrail) ack(successors int) {
	next := opPush(m.next, 1, strings.Repeat("v", 128))
	end := ackThen(m.q, fdbpq.Token{}, slices.Repeat([]fdbpq.Op{next}, successors)...)
	m.lease(end)
}

// fail leases a batch of jobs and gives it back, so many times, with reasons of a length.
func (m *measuredTrail) fail(attempts, reason int) {
	for n := range attempts {
		text := fmt.Sprintf("attempt %d: %s", n, strings.Repeat("x", reason))
		m.lease(fdbpq.Op{Kind: fdbpq.OpNak, Reason: text[:reason]})
	}
}

// processorTime is what this process has taken so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // always works
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
