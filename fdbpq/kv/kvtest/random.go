package kvtest

import (
	"errors"
	"fmt"
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

// seed returns the seed of a random test and logs how to run it again.
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
	f.Logf("to run it again, in the same directory: %s=%d go test -count=1 -run '^%s$' .", seedVariable, seed, path)
	return seed
}

var randomTests = []test{
	{"OneAtATime", func(f *fixture) {
		random := rand.New(rand.NewPCG(f.seed(), 0))
		committed := model{}
		for range 60 {
			tx, state := f.begin(), maps.Clone(committed)
			long := random.IntN(4) == 0
			for range random.IntN(map[bool]int{false: 12, true: 80}[long]) {
				op := randomOp(random)
				if long && op.kind == "clear range" {
					continue // so that an engine may bring the writes into another order
				}
				got, err := op.do(f, tx)
				if err != nil {
					f.Fatalf("%v: %v", op, err)
				}
				if want := op.apply(state); got != want {
					f.Fatalf("%v returned %s, want %s", op, got, want)
				}
			}
			switch random.IntN(8) {
			case 0:
				tx.Cancel()
			case 1:
				tx.Cancel()
				if f.engine.Persistent {
					f.reopen()
				}
			default:
				await(f, tx.Commit())
				committed = state
			}
			f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{}, committed.pairs()...)
		}
	}},
	{"Interleaved", func(f *fixture) {
		if f.db.Traits().Serial {
			return // there is never a second transaction open
		}
		random := rand.New(rand.NewPCG(f.seed(), 0))
		committed, version := model{}, 0
		var running []*run
		for range 400 {
			if len(running) < 4 {
				running = append(running, startRun(f, committed, version))
			}
			i := random.IntN(len(running))
			if random.IntN(6) > 0 {
				running[i].step(f, randomOp(random))
				continue
			}
			if running[i].commit(f, committed, version) {
				committed = running[i].after
				version++
			}
			running = slices.Delete(running, i, i+1)
			f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{}, committed.pairs()...)
		}
	}},
}

// run is a transaction among others in the same goroutine, and what it did.
type run struct {
	tx    kv.Transaction
	state model // what it must see
	began int   // how many others had committed
	ops   []op
	reads []string // what each of ops returned
	after model    // the store after its commit
}

func startRun(f *fixture, committed model, version int) *run {
	r := &run{tx: f.begin(), state: maps.Clone(committed), began: version}
	// Fixes the state it sees, even if the store does so with the first read.
	await(f, r.tx.Snapshot().Get(f.key("")))
	return r
}

func (r *run) step(f *fixture, op op) {
	f.Helper()
	got, err := op.do(f, r.tx)
	if err != nil {
		f.Fatalf("%v: %v", op, err)
	}
	if want := op.apply(r.state); got != want {
		f.Fatalf("%v returned %s, want %s", op, got, want)
	}
	r.ops, r.reads = append(r.ops, op), append(r.reads, got)
}

// commit commits and reports success. Then everything the transaction did must give
// the same results when it is repeated now, in the order of the commits. Without
// another commit since it began, it must succeed.
func (r *run) commit(f *fixture, committed model, version int) bool {
	f.Helper()
	_, err := r.tx.Commit().Get()
	if errors.Is(err, kv.ErrConflict) && version > r.began {
		return false
	}
	if err != nil {
		f.Fatalf("Commit: %v (%d commits since it began)", err, version-r.began)
	}

	r.after = maps.Clone(committed)
	for i, op := range r.ops {
		now := op.apply(r.after)
		// Reads without a conflict range may return something else now, and so may
		// all reads if nothing was written.
		if op.isRead() && !op.snapshot && r.wrote() && now != r.reads[i] {
			f.Fatalf("%v returned %s, but when the transaction committed it was %s: a conflict was missed", op, r.reads[i], now)
		}
	}
	return true
}

func (r *run) wrote() bool {
	return slices.ContainsFunc(r.ops, op.isWrite)
}

// model is the obviously right store: the pairs, by name.
type model map[string]string

// names returns the names from begin to before end in order.
func (m model) names(begin, end string) []string {
	var list []string
	for name := range m {
		if begin <= name && name < end {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func (m model) pairs() []string {
	var list []string
	for _, name := range m.names("", "\xff") {
		list = append(list, name+"="+m[name])
	}
	return list
}

// op is one operation of a transaction.
type op struct {
	kind     string
	snapshot bool
	key, end string
	value    string
	delta    int64
	options  kv.RangeOptions
}

func (o op) String() string {
	return fmt.Sprintf("%s(key %q, end %q, value %q, delta %d, options %+v, snapshot %t)",
		o.kind, o.key, o.end, o.value, o.delta, o.options, o.snapshot)
}

func (o op) isRead() bool { return o.kind == "get" || o.kind == "range" }

// isWrite reports whether o writes something: clearing an empty range does not.
func (o op) isWrite() bool { return !o.isRead() && (o.kind != "clear range" || o.key < o.end) }

func randomOp(random *rand.Rand) op {
	kinds := []string{"get", "range", "range", "set", "set", "clear", "clear range", "add", "compare and clear"}
	o := op{
		kind:     kinds[random.IntN(len(kinds))],
		snapshot: random.IntN(3) == 0,
		key:      randomName(random),
		end:      randomName(random),
		value:    []string{"", "1", "2", number(1), number(-1)}[random.IntN(5)],
		delta:    random.Int64N(3) - 1,
		options:  kv.RangeOptions{Limit: random.IntN(4), Bytes: max(random.IntN(20)-9, 0), Reverse: random.IntN(2) == 0},
	}

	// Mostly the right way round; otherwise the range is empty.
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

// do runs o in a transaction; the string is what it read.
func (o op) do(f *fixture, tx kv.Transaction) (string, error) {
	var r kv.Reader = tx
	if o.snapshot {
		r = tx.Snapshot()
	}

	switch o.kind {
	case "get":
		value, err := r.Get(f.key(o.key)).Get()
		return fmt.Sprintf("%q", text(value)), err
	case "range":
		pairs, err := r.GetRange(f.span(o.key, o.end), o.options).Get()
		return fmt.Sprintf("%q", f.pairs(pairs)), err
	case "set":
		tx.Set(f.key(o.key), []byte(o.value))
	case "clear":
		tx.Clear(f.key(o.key))
	case "clear range":
		tx.ClearRange(f.span(o.key, o.end))
	case "add":
		tx.Add(f.key(o.key), o.delta)
	case "compare and clear":
		tx.CompareAndClear(f.key(o.key), []byte(o.value))
	}
	return "", nil
}

// apply does o on the model; the string is what it read.
func (o op) apply(m model) string {
	switch o.kind {
	case "get":
		if value, ok := m[o.key]; ok {
			return fmt.Sprintf("%q", value)
		}
		return fmt.Sprintf("%q", absent)
	case "range":
		names := m.names(o.key, o.end)
		if o.options.Reverse {
			slices.Reverse(names)
		}
		if o.options.Limit > 0 {
			names = names[:min(o.options.Limit, len(names))]
		}
		var list []string
		size := 0
		for _, name := range names {
			list = append(list, name+"="+m[name])
			if size += len(m[name]); o.options.Bytes > 0 && size >= o.options.Bytes {
				break
			}
		}
		return fmt.Sprintf("%q", list)
	case "set":
		m[o.key] = o.value
	case "clear":
		delete(m, o.key)
	case "clear range":
		for _, name := range m.names(o.key, o.end) {
			delete(m, name)
		}
	case "add":
		// Adds byte by byte with a carry, to differ from what engines do.
		sum, carry := []byte(number(o.delta)), 0
		old := m[o.key]
		for i := range sum {
			if i < len(old) {
				carry += int(old[i])
			}
			carry += int(sum[i])
			sum[i], carry = byte(carry), carry>>8
		}
		m[o.key] = string(sum)
	case "compare and clear":
		if value, ok := m[o.key]; ok && value == o.value {
			delete(m, o.key)
		}
	}
	return ""
}
