package staged

import (
	"context"
	"errors"
	"fmt"
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

// faultRates has every fault except delays.
var faultRates = map[faultkv.Fault]float64{
	faultkv.Outage:            0.003,
	faultkv.TooOld:            0.01,
	faultkv.Throttled:         0.01,
	faultkv.Conflict:          0.1,
	faultkv.UnknownLost:       0.03,
	faultkv.UnknownMade:       0.03,
	faultkv.UnknownBeforeNext: 0.03,
	faultkv.UnknownDuringNext: 0.03,
}

// randomRun is one random run: processes of several kinds on one queue. The clock jumps, and the
// store has faults for pops.
type randomRun struct {
	*fixture
	fallible kv.Database // what the pops see
	ends     []fdbpq.End
	each     int          // items of a process that pushes
	pushing  atomic.Int64 // processes that still push

	mu             sync.Mutex
	pushed, popped []string
	counts         map[string]int // ends of pops, by kind
}

// Under random faults, Poppers in many processes give each item to one pop, and lose none.
func TestRandomPops(t *testing.T) {
	seed := rand.Uint64()
	if fixed := os.Getenv("FDBPQ_SEED"); fixed != "" {
		seed, _ = strconv.ParseUint(fixed, 10, 64)
	}

	t.Logf("to run it again: FDBPQ_SEED=%d go test -count=1 -run '^%s$' ./fdbpq/staged",
		seed, t.Name())
	for _, e := range append(engines(), engine{"mem/fifo", fdbpq.RawValues, openMem}) {
		t.Run(e.name, func(t *testing.T) {
			f := newFixture(t, e.open(t), e.format)
			store := faultkv.New(f.db, faultkv.Options{Seed: seed, Rates: faultRates})

			run := &randomRun{
				fixture:  f,
				fallible: store,
				counts:   map[string]int{},
				each:     60,
				ends:     []fdbpq.End{fdbpq.Front, fdbpq.Back},
			}

			switch e.name {
			case "fdb":
				run.each = 20
			case "mem/fifo":
				run.target, run.ends = must(f.Queue("jobs")), run.ends[:1]
			}

			run.all(seed)
			store.Land()
			run.finish()
			run.Logf("%d items; pops ended with %v; faults: %v",
				len(run.pushed), run.counts, store.Counts())
		})
	}
}

// all runs all processes, and returns when they have ended.
func (run *randomRun) all(seed uint64) {
	var wg sync.WaitGroup
	process := func(stream uint64, fn func(random *rand.Rand)) {
		random := rand.New(rand.NewPCG(seed, stream))
		wg.Go(func() { fn(random) })
	}

	const (
		pushers = 3
		poppers = 8
		sharing = 3 // poppers that share a Popper, as the goroutines of one process may

		// Each process has a stream of random numbers of its own. Those of pushers begin at 0.
		popperStreams = 100
		plainStream   = 200
		dyingStream   = 201
	)
	run.pushing.Store(pushers)
	shared := run.popperOf(run.fallible)

	for n := range uint64(pushers) {
		process(n, func(random *rand.Rand) { run.push(n, random) })
	}

	for n := range uint64(poppers) {
		p := shared
		if n >= sharing {
			p = run.popperOf(run.fallible)
		}

		process(popperStreams+n, func(random *rand.Rand) { run.pop(p, random) })
	}

	process(plainStream, run.popPlain)
	process(dyingStream, run.dieInLine)
	wg.Wait()
}

func (run *randomRun) push(n uint64, random *rand.Rand) {
	defer run.pushing.Add(-1)
	b := fdbpq.NewBatcher(run.db, run.Keyspace)

	for i := range run.each {
		op := push(random.Int64N(3), fmt.Sprint(n, "/", i))
		op.Queue = run.target

		if random.IntN(4) == 0 {
			op.Message.Headers = map[string][]string{"H": {"x"}}
		}

		_, err := b.Apply(run.ctx, []fdbpq.Op{op})
		wantError(run.T, err, nil)

		run.note(&run.pushed, string(op.Message.Value))
	}
}

func (run *randomRun) note(list *[]string, value string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	*list = append(*list, value)
}

// end returns one of the ends that the queue can be popped from.
func (run *randomRun) end(random *rand.Rand) fdbpq.End {
	n := random.IntN(len(run.ends))
	return run.ends[n]
}

// pop pops until no more items come, with contexts that end at any time.
func (run *randomRun) pop(p *Popper, random *rand.Rand) {
	for {
		last := run.pushing.Load() == 0
		ctx, cancel := context.WithCancel(run.ctx)

		if random.IntN(5) == 0 {
			time.AfterFunc(time.Duration(random.IntN(20_000))*time.Microsecond, cancel)
		}

		item, err := p.pop(ctx, run.end(random))
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
func (run *randomRun) settle(fn func(context.Context) error) {
	for fn(run.ctx) != nil && run.ctx.Err() == nil {
	}
}

func (run *randomRun) count(err error) {
	run.mu.Lock()
	defer run.mu.Unlock()

	for _, kind := range []error{
		nil, fdbpq.ErrEmpty, kv.ErrCommitUnknown, context.Canceled, kv.ErrUnavailable,
	} {
		if errors.Is(err, kind) {
			run.counts[fmt.Sprint(kind)]++
			return
		}
	}

	run.Errorf("pop: %v", err)
}

// popPlain pops in batches, as the bridge does.
func (run *randomRun) popPlain(*rand.Rand) {
	b := fdbpq.NewBatcher(run.fallible, run.Keyspace)
	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: run.target}

	for run.pushing.Load() > 0 {
		results, err := b.Apply(run.ctx, []fdbpq.Op{pop, pop})
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
func (run *randomRun) dieInLine(random *rand.Rand) {
	for run.pushing.Load() > 0 {
		run.registerAbandoned(run.end(random))
		run.clock.advance(requestLife / 2)
	}
}

// finish checks that nothing was lost or doubled, and that nothing of the pops stays stored.
func (run *randomRun) finish() {
	p := run.popper()
	run.clock.advance(claimLife + answerLife) // items of pops that died come back

	for {
		item, err := p.PopMin(run.ctx)
		if err != nil {
			wantError(run.T, err, fdbpq.ErrEmpty)
			break
		}

		run.note(&run.popped, string(item.Value))
	}

	slices.Sort(run.pushed)
	slices.Sort(run.popped)
	wantList(run.T, "all that was popped", run.popped, run.pushed...)

	for run.stored().requests > 0 { // of processes that died
		run.serve()
	}

	run.clock.advance(claimLife + answerLife) // now all answers and claims have expired
	run.wantEmpty(p)
	run.wantStored(stored{})
}
