package kvtest

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// seedVariable is the environment variable that fixes the seed of random tests.
const seedVariable = "KVTEST_SEED"

// seed returns the seed of a random test, and logs how to repeat the run.
func (f *fixture) seed() uint64 {
	f.Helper()
	seed := rand.Uint64()
	if fixed := os.Getenv(seedVariable); fixed != "" {
		var err error
		if seed, err = strconv.ParseUint(fixed, 10, 64); err != nil {
			f.Fatalf("%s: %v", seedVariable, err)
		}
	}

	path := strings.ReplaceAll(f.Name(), "/", "$/^")
	f.Logf("to run it again, in the same directory: %s=%d go test -count=1 -run '^%s$' .",
		seedVariable, seed, path)
	return seed
}

var randomTests = []test{
	// Random transactions, one after the other, read and leave the same as the model.
	{"OneAtATime", func(f *fixture) {
		random := rand.New(rand.NewPCG(f.seed(), 0))
		committed := model{}
		for range 100 {
			r := startRun(f, random, committed, 0)
			long := random.IntN(4) == 0
			for range random.IntN(map[bool]int{false: 12, true: 80}[long]) {
				// Without cleared ranges an engine may reorder the writes.
				if o := randomOp(random); !long || o.kind != "clear range" {
					r.step(f, o)
				}
			}

			// A reader waits for no writer, and sees one state.
			reader, before := f.beginRead(), committed
			f.wantPairs(reader, before)
			switch random.IntN(8) {
			case 0:
				r.tx.Cancel()
			case 1:
				r.tx.Cancel()
				if f.engine.Persistent {
					f.reopen()
					reader = f.beginRead()
				}
			default:
				if _, err := r.tx.Commit().Get(); err == nil {
					committed = r.state
				} else if !r.failed || !errors.Is(err, kv.ErrBlind) {
					f.Fatalf("Commit: %v", err)
				}
			}

			f.wantPairs(reader, before)
			reader.Cancel()
			f.wantPairs(f.beginRead(), committed)
		}
	}},
	// Random transactions at the same time give the results of some order of their commits.
	{"Interleaved", onlyIf(concurrent, func(f *fixture) {
		random := rand.New(rand.NewPCG(f.seed(), 0))
		committed, version := model{}, 0
		var running []*run
		for range 400 {
			if len(running) < 4 {
				running = append(running, startRun(f, random, committed, version))
			}

			i := random.IntN(len(running))
			if random.IntN(6) > 0 {
				running[i].step(f, randomOp(random))
				continue
			}

			if random.IntN(4) == 0 {
				running[i].tx.Cancel()
			} else if running[i].commit(f, committed, version) {
				committed = running[i].after
				version++
			}

			running = slices.Delete(running, i, i+1)
			f.wantPairs(f.beginRead(), committed)
		}
	})},
}

// run is a transaction among others in the same goroutine, and what it did.
type run struct {
	tx              kv.Transaction
	blind, readOnly bool
	failed          bool  // a blind one has read what it wrote
	state           model // what it must see
	began           int   // how many others had committed
	ops             []op
	reads           []string // what each of ops returned
	after           model    // the store after its commit
}

func startRun(f *fixture, random *rand.Rand, committed model, version int) *run {
	o := kv.BeginOptions{Blind: random.IntN(4) == 0, Shrinks: random.IntN(4) == 0}
	r := &run{tx: f.beginWith(f.ctx, o), blind: o.Blind, readOnly: random.IntN(4) == 0,
		state: maps.Clone(committed), began: version}

	// The first read fixes the state that it sees, in case Begin has not.
	await(f, r.tx.Snapshot().Get(f.key("")))
	return r
}

// step runs an operation, unless it would write in a transaction that only reads. In a blind one, a
// read fails or sees the writes.
func (r *run) step(f *fixture, o op) {
	f.Helper()
	if r.failed || r.readOnly && o.isWrite() {
		return
	}
	got, err := o.do(f, r.tx)
	if r.failed = r.blind && r.wrote() && o.isRead() && errors.Is(err, kv.ErrBlind); r.failed {
		return
	}
	f.wantResult(r.state, o, got, err)
	r.ops, r.reads = append(r.ops, o), append(r.reads, got)
}

// commit commits and reports success. It must succeed if nobody else has committed since it began,
// or if it wrote nothing. After success, everything that the transaction did must give the same
// results when it is repeated now, in the order of the commits.
func (r *run) commit(f *fixture, committed model, version int) bool {
	f.Helper()
	_, err := r.tx.Commit().Get()
	if r.failed && errors.Is(err, kv.ErrBlind) {
		return false
	}
	if errors.Is(err, kv.ErrConflict) && version > r.began && r.wrote() {
		return false
	}
	if err != nil {
		f.Fatalf("Commit: %v (%d commits since it began)", err, version-r.began)
	}

	r.after = maps.Clone(committed)
	for i, o := range r.ops {
		now := r.after.apply(o)
		// Reads without a conflict range may return something else now, and so may all reads if
		// nothing was written.
		if o.isRead() && !o.snapshot && r.wrote() && now != r.reads[i] {
			f.Fatalf("%v returned %s, but when the transaction committed it was %s: "+
				"a conflict was missed", o, r.reads[i], now)
		}
	}

	return true
}

func (r *run) wrote() bool { return slices.ContainsFunc(r.ops, op.isWrite) }

func randomOp(random *rand.Rand) op {
	kinds := []string{"get", "range", "range", "set", "set", "clear", "clear range", "add",
		"compare and clear", "read conflict", "write conflict"}
	o := op{
		kind:     kinds[random.IntN(len(kinds))],
		snapshot: random.IntN(3) == 0,
		key:      randomName(random),
		end:      randomName(random),
		value:    []string{"", "1", "2", number(1), number(-1)}[random.IntN(5)],
		delta:    random.Int64N(3) - 1,
	}

	o.options.Limit = random.IntN(4)
	o.options.Bytes = max(random.IntN(20)-9, 0)
	o.options.Reverse = random.IntN(2) == 0

	// Mostly the right way round. Otherwise the range is empty.
	if o.end < o.key && random.IntN(8) > 0 {
		o.key, o.end = o.end, o.key
	}

	return o
}

// randomName returns one of a few names, so that operations meet.
func randomName(random *rand.Rand) string {
	letters := []string{"", "\x00", "a", "b"}
	return "k" + letters[random.IntN(4)] + letters[random.IntN(4)]
}
