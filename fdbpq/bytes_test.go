package fdbpq_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The bytes of items that staged pops have taken are counted right, whether anybody collects them or not, while max_bytes
// comes and goes; the fixture's check compares them with a scan.
func TestBytesOfUncollectedPops(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		clock := f.setClock()
		q := f.queue("jobs")
		for n := range harness.RaceTimes(120, 40) {
			clock.advance(time.Duration(random.IntN(2000)) * time.Millisecond)
			switch random.IntN(8) {
			case 0:
				most := []int64{0, 1 << 40, 1_000}[random.IntN(3)]
				f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes, s.Discard = most, fdbpq.DiscardOld })
			case 1, 2:
				f.leave(q, clock.now(), fdbpq.Front)
			case 3:
				f.apply(op(opPopMin, q), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})
			default:
				push := opPush(q, random.Int64N(3), strings.Repeat("\x00", []int{random.IntN(20), 200_000}[random.IntN(6)/5]))
				if random.IntN(4) == 0 {
					push.Message.Headers = map[string][]string{"A": {"\x00b", ""}}
				}
				f.apply(push)
			}
			if n%10 == 0 {
				f.check()
			}
		}
	})
}

// Staged pops that are collected are counted, and so are those that are counted first while they wait for that.
func TestBytesOfStagedPops(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
	const workers, each = 4, 40
	for range workers * each {
		f.push(q, 1, "12345")
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			p := staged.New(f.db, q)
			for range each {
				must(p.PopMin(f.ctx))
			}
		})
	}
	for range 20 {
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 0 })
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
		f.check()
	}
	wg.Wait()
	f.check()
}

// What leaves and comes while a large queue is counted is counted once.
func TestBytesWhileCounting(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		var ops []fdbpq.Op
		for i := range 6000 {
			ops = append(ops, opPush(q, int64(i%3), "12345"))
			if len(ops) == 2000 {
				f.apply(ops...)
				ops = nil
			}
		}
		f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes, s.MaxDeliver = 1<<30, 1 })
		done := make(chan error, 1)
		go func() {
			b := fdbpq.NewBatcher(f.db, f.Keyspace)
			_, err := b.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "x")})
			done <- err
		}()
		for running := true; running; {
			r := f.apply(op(opPopMin, q), op(opPopMax, q), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})
			f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: r[2].Lease.Token},
				fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: q.DeadLetters()}, fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &r[1].Item})
			select {
			case err := <-done:
				if err != nil && !kv.MaybeCommitted(err) {
					f.Error(err)
				}
				running = false
			default:
			}
		}
	})
}

// Whoever counts items conflicts with whoever takes one that does not count yet, in whichever order they commit.
func TestCountingConflicts(t *testing.T) {
	for _, countsFirst := range []bool{false, true} {
		f := onMem(t)
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c")
		first, second := op(opPopMin, q), fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.MaxBytes = 100 }}
		if countsFirst {
			first, second = second, first
		}
		f.wantConflict(true, func() { wantError(t, f.apply(first)[0].Err, nil) }, second)
		f.check()
	}
}
