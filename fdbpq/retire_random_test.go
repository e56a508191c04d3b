package fdbpq_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// retiringBridge is a process with its own handles and its own clock.
type retiringBridge struct {
	number  int
	db      kv.Database
	batcher *fdbpq.Batcher
	queues  []fdbpq.Target
	skew    time.Duration
	busy    bool // in the middle of a transaction

	ripe       fdbpq.Mark
	ripeMarked time.Duration // when it was used last
}

// retirement runs several processes that push, pop and retire, in one goroutine, with the
// transactions of each in the middle of those of others.
type retirement struct {
	*fixture
	random  *rand.Rand
	bridges []*retiringBridge
	time    time.Duration // since the begin
	budget  time.Duration // how far it may go on until the outermost transaction ends
	pushed  int
}

// No queue with items is ever missing from the list, and the counters are exact, however
// processes with different clocks push, pop and retire.
func TestRetireNeverLosesQueues(t *testing.T) {
	_, seed := newRandom(t)
	for round := range uint64(harness.Times(15, 300)) {
		// Waits between attempts take no time.
		synctest.Test(t, func(t *testing.T) { runRetirement(t, seed+round) })
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

func runRetirement(t *testing.T, seed uint64) {
	f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
	m := &retirement{fixture: f.fixture, random: rand.New(rand.NewPCG(seed, 1))}
	for n := range 3 {
		m.addBridge(n, f.faults)
	}
	for range 150 {
		m.budget = fdbpq.RetireAfter - fdbpq.ListedLife - time.Second
		m.act()
		m.advance(m.upTo(2 * fdbpq.RetireAfter))
		f.faults.Land()
		f.check()
		if t.Failed() {
			break
		}
	}
	f.calm()
}

func (m *retirement) addBridge(n int, db kv.Database) {
	b := &retiringBridge{number: n, skew: time.Duration(n-1) * 24 * time.Hour}
	b.db = &hooked{Database: db, begun: m.interfere, beforeCommit: m.interfere}
	b.batcher = fdbpq.NewBatcher(b.db, m.Keyspace)
	start := time.Now().Round(0)
	b.batcher.SetNow(func() time.Time { return start.Add(m.time + b.skew) })
	b.queues = []fdbpq.Target{m.queue("a"), m.fifoQueue("a")}
	m.bridges = append(m.bridges, b)
}

// interfere lets others act in the middle of a transaction.
func (m *retirement) interfere() {
	for m.random.IntN(3) == 0 {
		step := m.upTo(m.budget)
		m.budget -= step
		m.advance(step)
		m.act()
	}
}

// upTo returns a random duration, often close to one that matters.
func (m *retirement) upTo(d time.Duration) time.Duration {
	times := []time.Duration{0, 0, fdbpq.ListedLife, fdbpq.RetireAfter - fdbpq.ListedLife, fdbpq.RetireAfter}
	near := times[m.random.IntN(len(times))] + time.Duration(m.random.IntN(20)-10)*time.Second
	return min(max(0, near), d)
}

func (m *retirement) advance(d time.Duration) { m.time += d }

// act lets an idle process do something.
func (m *retirement) act() {
	b := m.bridges[m.random.IntN(len(m.bridges))]
	if b.busy {
		return
	}
	b.busy = true
	defer func() { b.busy = false }()
	if m.random.IntN(2) == 0 {
		m.retire(b)
		return
	}
	var ops []fdbpq.Op
	for range 1 + m.random.IntN(2) {
		q := b.queues[m.random.IntN(len(b.queues))]
		if m.random.IntN(3) > 0 {
			ops = append(ops, op(opPopMin, q), op(opPopMin, q))
			continue
		}
		m.pushed++
		ops = append(ops, opPush(q, int64(m.random.IntN(2)), fmt.Sprint(m.pushed)))
	}
	wantError(m.T, errOf(b.batcher.Apply(m.ctx, ops)), nil)
}

// retire is one round in which a process retires queues.
func (m *retirement) retire(b *retiringBridge) {
	ripe := b.ripe
	if m.time-b.ripeMarked < fdbpq.RetireAfter {
		return
	}
	next := fdbpq.NewMark()
	for _, q := range b.queues {
		if m.random.IntN(8) == 0 {
			continue
		}
		wantError(m.T, errOf(fdbpq.Retire(m.ctx, b.db, []fdbpq.Target{q}, next, ripe)), nil)
	}
	b.ripe, b.ripeMarked = next, m.time
}
