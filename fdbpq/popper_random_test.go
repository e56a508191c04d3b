package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// popperRates has every fault except delays.
var popperRates = map[faultkv.Fault]float64{
	faultkv.Outage:            0.003,
	faultkv.TooOld:            0.01,
	faultkv.Throttled:         0.01,
	faultkv.Conflict:          0.1,
	faultkv.UnknownLost:       0.03,
	faultkv.UnknownMade:       0.03,
	faultkv.UnknownBeforeNext: 0.03,
	faultkv.UnknownDuringNext: 0.03,
}

// popperRun is one random run: processes of several kinds on one queue, in a store with
// faults, with a clock that jumps.
type popperRun struct {
	*stagedFixture
	seed     uint64
	fallible kv.Database // what the pops see
	fifo     bool
	target   fdbpq.Target
	each     int          // items of a process that pushes
	pushing  atomic.Int64 // processes that still push

	mu     sync.Mutex
	pushed []string
	popped []string
	counts map[string]int // ends of pops, by kind
}

func TestRandomPops(t *testing.T) {
	seed := rand.Uint64()
	if fixed := os.Getenv("FDBPQ_SEED"); fixed != "" {
		seed, _ = strconv.ParseUint(fixed, 10, 64)
	}
	t.Logf("to run it again: FDBPQ_SEED=%d go test -count=1 -run '^%s$' ./fdbpq", seed, t.Name())
	for _, e := range engines() {
		for _, fifo := range []bool{false, true} {
			if fifo && e.name != "mem" {
				continue // it makes no difference there
			}
			t.Run(fmt.Sprintf("%s/fifo=%t", e.name, fifo), func(t *testing.T) {
				f := newFixture(t, e.open(t), fdbpq.RawValues)
				rates := maps.Clone(popperRates)
				if f.db.Traits().Serial { // nobody could begin before such a commit
					delete(rates, faultkv.UnknownBeforeNext)
					delete(rates, faultkv.UnknownDuringNext)
				}
				store := faultkv.New(f.db, faultkv.Options{Seed: seed, Rates: rates})
				run := &popperRun{seed: seed, fallible: store, fifo: fifo, counts: map[string]int{}, each: 60}
				if e.name != "mem" {
					run.each = 20
				}
				run.stagedFixture = &stagedFixture{fixture: f, store: store, q: f.queue("random"), clock: newClock(time.Now())}
				run.target = run.q
				if fifo {
					run.target = f.fifoQueue("random")
				}
				run.p = fdbpq.NewPopper(f.db, run.target)
				run.clock.give(run.p)
				run.all()
			})
		}
	}
}

func (run *popperRun) all() {
	var wg sync.WaitGroup
	process := func(n uint64, fn func(random *rand.Rand)) {
		random := rand.New(rand.NewPCG(run.seed, n))
		wg.Go(func() { fn(random) })
	}
	const pushers, poppers = 3, 8
	run.pushing.Store(pushers)
	shared := fdbpq.NewPopper(run.fallible, run.target)
	run.clock.give(shared)
	for n := range uint64(pushers) {
		process(n, func(random *rand.Rand) { run.push(n, random) })
	}
	for n := range uint64(poppers) {
		p := shared
		if n > 2 {
			p = fdbpq.NewPopper(run.fallible, run.target)
			run.clock.give(p)
		}
		if n%4 == 3 { // it belongs to an earlier version
			process(100+n, func(random *rand.Rand) { run.pop(p, p.PopAsBefore, random) })
			continue
		}
		process(100+n, func(random *rand.Rand) { run.pop(p, p.Pop, random) })
	}
	process(200, run.popPlain)
	process(201, run.dieInLine)
	wg.Wait()
	run.finish()
}

func (run *popperRun) push(n uint64, random *rand.Rand) {
	defer run.pushing.Add(-1)
	b := fdbpq.NewBatcher(run.db, run.Keyspace)
	for i := range run.each {
		m := message(fmt.Sprint(n, "/", i))
		if random.IntN(4) == 0 {
			m.Headers = map[string][]string{"H": {"x"}}
		}
		ops := []fdbpq.Op{{Kind: fdbpq.OpPush, Queue: run.target, Priority: random.Int64N(3), Message: m}}
		if _, err := b.Apply(run.ctx, ops); err != nil {
			run.Errorf("push: %v", err)
		}
		run.note(&run.pushed, string(m.Value))
	}
}

func (run *popperRun) note(list *[]string, value string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	*list = append(*list, value)
}

// pop pops until no more items come, with contexts that end at any time.
func (run *popperRun) pop(p *fdbpq.Popper, pop func(context.Context, fdbpq.End) (fdbpq.Item, error), random *rand.Rand) {
	for {
		last := run.pushing.Load() == 0
		ctx, cancel := context.WithCancel(run.ctx)
		if random.IntN(5) == 0 {
			time.AfterFunc(time.Duration(random.IntN(20_000))*time.Microsecond, cancel)
		}
		end := fdbpq.Front
		if !run.fifo && random.IntN(2) == 0 {
			end = fdbpq.Back
		}
		item, err := pop(ctx, end)
		cancel()
		run.count(err)
		if err == nil {
			run.note(&run.popped, string(item.Value))
		}
		run.clock.advance(time.Duration(random.IntN(1000)) * time.Millisecond)
		if last && errors.Is(err, fdbpq.ErrEmpty) {
			run.settle(p.Settle)
			return
		}
	}
}

// settle retries until it succeeds, so that the place of every item is known.
func (run *popperRun) settle(fn func(context.Context) error) {
	for {
		if err := fn(run.ctx); err == nil || run.ctx.Err() != nil {
			return
		}
	}
}

func (run *popperRun) count(err error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	for _, kind := range []error{nil, fdbpq.ErrEmpty, kv.ErrCommitUnknown, context.Canceled, kv.ErrUnavailable} {
		if errors.Is(err, kind) {
			run.counts[fmt.Sprint(kind)]++
			return
		}
	}
	run.Errorf("pop: %v", err)
}

// popPlain pops in batches, as the bridge does.
func (run *popperRun) popPlain(random *rand.Rand) {
	b := fdbpq.NewBatcher(run.fallible, run.Keyspace)
	for run.pushing.Load() > 0 {
		results, err := b.Apply(run.ctx, []fdbpq.Op{op(opPopMin, run.target), op(opPopMin, run.target)})
		if err != nil {
			run.settle(b.Settle)
			continue
		}
		for _, r := range results {
			if r.Err == nil {
				run.note(&run.popped, string(r.Item.Value))
			}
		}
	}
}

// dieInLine registers requests whose owner is gone.
func (run *popperRun) dieInLine(random *rand.Rand) {
	for run.pushing.Load() > 0 {
		end := fdbpq.Front
		if !run.fifo && random.IntN(2) == 0 {
			end = fdbpq.Back
		}
		run.line(run.p, end)
		run.clock.advance(fdbpq.RequestLife / 2)
	}
}

// finish checks that nothing was lost or doubled.
func (run *popperRun) finish() {
	run.store.Land()
	run.clock.advance(fdbpq.ClaimLife + fdbpq.AnswerLife)
	for {
		run.clock.advance(fdbpq.SweepEvery)
		item, err := run.p.PopMin(run.ctx)
		if err != nil {
			wantError(run.T, err, fdbpq.ErrEmpty)
			break
		}
		run.note(&run.popped, string(item.Value))
	}
	slices.Sort(run.pushed)
	slices.Sort(run.popped)
	wantList(run.T, "all that was popped", run.popped, run.pushed...)
	for run.staged(run.p).Requests > 0 { // of those who died
		run.serve(run.p)
	}
	run.clock.advance(fdbpq.ClaimLife + fdbpq.AnswerLife)
	run.wantEmpty(run.p.PopMin)
	run.wantStaged(run.p, 0, 0, 0, 0)
	run.Logf("%d items; pops ended with %v; faults: %v", len(run.pushed), run.counts, run.store.Counts())
}
