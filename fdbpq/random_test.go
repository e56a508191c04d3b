package fdbpq_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")

// newRandom prints the seed, and the command that repeats the test with it.
func newRandom(t *testing.T) (random *rand.Rand, seed uint64) {
	seed = cmp.Or(*seedFlag, uint64(time.Now().UnixNano()))
	t.Logf("again: go test ./fdbpq -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// rates are the faults of a store on a very bad day.
var rates = map[faultkv.Fault]float64{
	faultkv.Conflict:          0.03,
	faultkv.TooOld:            0.01,
	faultkv.Throttled:         0.01,
	faultkv.UnknownLost:       0.04,
	faultkv.UnknownMade:       0.04,
	faultkv.UnknownBeforeNext: 0.04,
	faultkv.UnknownDuringNext: 0.04,
}

// worker is one of several clients of the same queues.
type worker struct {
	*unsure
	number  int
	random  *rand.Rand
	batcher *fdbpq.Batcher
	pushes  int
}

// run runs the workers concurrently, and waits for all.
func (f *unsure) run(seed uint64, workers int, work func(w *worker)) {
	var group sync.WaitGroup
	for n := range workers {
		w := &worker{unsure: f, number: n, random: rand.New(rand.NewPCG(seed, uint64(n)+1))}
		w.batcher = fdbpq.NewBatcher(f.faults, f.Keyspace)
		group.Go(func() { work(w) })
	}

	group.Wait()
}

// nextOp returns a random operation; each pushed value is different.
func (w *worker) nextOp(q, fifo fdbpq.Target, whats ...fdbpq.Op) fdbpq.Op {
	o := op(whats[w.random.IntN(len(whats))], q)
	if fifo != nil && w.random.IntN(2) == 0 && o.End != fdbpq.Back {
		o.Queue = fifo
	}

	if o.Kind == fdbpq.OpPush {
		w.pushes++
		o.Priority = int64(w.random.IntN(3))
		o.Message = message(fmt.Sprintf("%d-%d", w.number, w.pushes))

		if w.random.IntN(4) == 0 {
			o.Message.Headers = map[string][]string{"H": {"v"}}
		}
	}

	return o
}

// tally is what happened to each value of all workers.
type tally struct {
	sync.Mutex
	surely, perhaps map[string]bool // pushed
	popped          map[string]int  // and not restored
	batches         [][]string      // pushes of those of unknown outcome
}

func (ta *tally) add(ops []fdbpq.Op, results []fdbpq.Result, err error) {
	ta.Lock()
	defer ta.Unlock()
	var unsure []string

	for i, o := range ops {
		switch {
		case o.Kind == fdbpq.OpPush && kv.MaybeCommitted(err):
			ta.perhaps[string(o.Message.Value)] = true
			unsure = append(unsure, string(o.Message.Value))
		case o.Kind == fdbpq.OpPush && err == nil:
			ta.surely[string(o.Message.Value)] = true
		// An outcome of Unknown undoes pops, and no restores.
		case o.Kind == fdbpq.OpRestore && (err == nil || kv.MaybeCommitted(err)):
			ta.popped[string(o.Item.Value)]--
		case o.Kind == fdbpq.OpPop && err == nil && results[i].Err == nil:
			ta.popped[string(results[i].Item.Value)]++
		}
	}

	ta.batches = append(ta.batches, unsure)
}

// Every acknowledged item is popped exactly once, an item of unknown outcome at most once, and
// nothing else, whatever becomes of commits.
func TestEveryItemOnce(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t, faultkv.Options{Seed: seed, Rates: rates})
	q, fifo := f.queue("a"), f.fifoQueue("a")
	ta := &tally{surely: map[string]bool{}, perhaps: map[string]bool{}, popped: map[string]int{}}

	for i := range 100 {
		values := []string{fmt.Sprint("q", i), fmt.Sprint("f", i)}
		f.apply(opPush(q, int64(i%3), values[0]), opPush(fifo, 0, values[1]))
		ta.surely[values[0]], ta.surely[values[1]] = true, true
	}

	const rounds, closing = 140, 20 // in the last rounds workers only restore
	f.run(seed, 6, func(w *worker) {
		var back []fdbpq.Op // what this worker has to restore
		begin := w.givingUp()

		for round := range rounds {
			ops := back
			if round < rounds-closing {
				ops = append(ops, w.pushesAndPops(q, fifo)...)
			}

			ctx, cancel := begin()
			results, err := w.batcher.Apply(ctx, ops)
			cancel()

			ta.add(ops, results, err)
			w.settle(err)

			if err == nil || kv.MaybeCommitted(err) { // otherwise nothing is done
				back = w.restoresOf(ops, results)
			}
		}
		wantEqual(f.T, "items to restore", len(back), 0)
	})

	f.calm()
	left := append(f.values(q.PopMin), f.values(fifo.Dequeue)...)

	for _, v := range left {
		ta.popped[v]++
	}

	for v, n := range ta.popped {
		if n != 1 || !ta.surely[v] && !ta.perhaps[v] {
			t.Errorf("%s was popped %d times, surely pushed %v, perhaps %v",
				v, n, ta.surely[v], ta.perhaps[v])
		}
	}

	for v := range ta.surely {
		if ta.popped[v] == 0 {
			t.Errorf("%s is lost", v)
		}
	}

	for _, values := range ta.batches {
		there := slices.DeleteFunc(slices.Clone(values),
			func(v string) bool { return ta.popped[v] == 0 })
		if len(there) > 0 && len(there) < len(values) {
			t.Errorf("of a batch that pushed %q, only %q are there", values, there)
		}
	}

	t.Logf("%d pushed, %d perhaps, %d popped, %d of them left; faults %v", len(ta.surely),
		len(ta.perhaps), len(ta.popped), len(left), f.faults.Counts())
}

// pushesAndPops draws up to five operations, some of them pushes that follow each other.
func (w *worker) pushesAndPops(q, fifo fdbpq.Target) (ops []fdbpq.Op) {
	for n := range w.random.IntN(6) {
		o := w.nextOp(q, fifo, opNoItem, opNoItem, opPopMin, opPopMin, opPopMax)
		if n > 0 {
			last := ops[n-1]
			o.Follows = o.Kind == fdbpq.OpPush && last.Kind == fdbpq.OpPush && o.Queue == last.Queue
		}

		ops = append(ops, o)
	}
	return ops
}

// settle settles a batch that ended with an unknown outcome. A batch may only be given up.
func (w *worker) settle(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		w.Errorf("Apply: %v", err)
	}
	for kv.MaybeCommitted(err) && w.batcher.Settle(w.ctx) != nil {
		w.Error("Settle failed")
	}
}

// restoresOf draws half of the items that were popped, which nobody is to have received, and
// returns what restores them. The restores of the batch itself must have succeeded.
func (w *worker) restoresOf(ops []fdbpq.Op, results []fdbpq.Result) (back []fdbpq.Op) {
	for i, r := range results {
		switch {
		case ops[i].Kind == fdbpq.OpRestore:
			wantError(w.T, r.Err, nil)
		case ops[i].Kind == fdbpq.OpPop && r.Err == nil && w.random.IntN(2) == 0:
			back = append(back, opRestore(ops[i].Queue, r.Item))
		}
	}
	return back
}

// givingUp replaces the worker's Batcher by one whose batches are given up after every third commit
// of unknown outcome, if they run with the context that the function returns.
func (w *worker) givingUp() func() (context.Context, context.CancelFunc) {
	var end atomic.Pointer[context.CancelFunc]
	w.batcher = fdbpq.NewBatcher(&hooked{Database: w.faults, unknown: func() {
		if cancel := end.Load(); cancel != nil {
			(*cancel)()
		}
	}}, w.Keyspace)

	return func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(w.ctx)
		if end.Store(nil); w.random.IntN(3) == 0 {
			end.Store(&cancel)
		}

		return ctx, cancel
	}
}
