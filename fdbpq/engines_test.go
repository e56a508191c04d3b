package fdbpq_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

// engine is a kind of store to run tests on. open may return a shared store: each test has
// its own roots in it.
type engine struct {
	name string
	open func(t *testing.T) kv.Database
}

var (
	mem    = engine{"mem", func(*testing.T) kv.Database { return memkv.New(memkv.Options{}) }}
	pebble = engine{"pebble", func(t *testing.T) kv.Database { return openPebble(t, vfs.NewMem()) }}
	fdb    = engine{"fdb", func(t *testing.T) kv.Database { return testenv.FDB(t) }}
)

// engines returns what to run a test on: memory, the engines in also, and FoundationDB if it was
// asked for. Nightly it returns all of them. The race detector makes Pebble check itself, which
// takes 20 times as long.
func engines(also ...engine) []engine {
	list := []engine{mem}
	if nightly() || len(also) > 0 && !harness.Race {
		list = append(list, pebble)
	}

	if fdbAsked() {
		list = append(list, fdb)
	}

	return list
}

func fdbAsked() bool {
	return nightly() || os.Getenv("PQ_TEST_FDB") == "1" || os.Getenv("FDB_CLUSTER_FILE") != ""
}

func nightly() bool { return harness.Nightly && !harness.Race }

func openPebble(t *testing.T, fs vfs.FS) kv.Database {
	return must(pebblekv.Open("db",
		pebblekv.Options{FS: fs, MinFreeSpace: -1, Logger: slog.New(slog.DiscardHandler)}))
}

// patience bounds each test, so that a test that hangs fails under its own name.
const patience = 5 * time.Minute

// fixture is a keyspace for one test.
type fixture struct {
	*testing.T
	ctx context.Context
	db  kv.Database
	*fdbpq.Keyspace
	format         fdbpq.ValueFormat
	priority, fifo string // roots
	batcher        *fdbpq.Batcher

	slow    bool // each transaction takes milliseconds, so random tests make fewer
	brief   bool // a transaction may live for five seconds
	corrupt bool // the test leaves keys behind that break the invariants
}

// onEngines runs a test on engines, with one of the value formats, always the same. Nightly it has
// each of them, but not on FoundationDB, which is the slowest and does not know of formats.
func onEngines(t *testing.T, run func(f *fixture)) { on(t, engines(), run) }

// onStores is onEngines for a test of values and transactions so large that the store matters.
func onStores(t *testing.T, run func(f *fixture)) { on(t, engines(pebble), run) }

func on(t *testing.T, engines []engine, run func(f *fixture)) {
	for _, e := range engines {
		for format, name := range []string{"raw", "tuple"} {
			if (e.name == "fdb" || !nightly()) && format != len(t.Name())%2 {
				continue
			}
			t.Run(e.name+"/"+name, func(t *testing.T) {
				f := newFixture(t, e.open(t), fdbpq.ValueFormat(format))
				f.brief = e.name == "fdb"
				f.slow = f.brief || harness.Race
				run(f)
			})
		}
	}
}

// steps is how many steps a random test makes.
func (f *fixture) steps(n int) int {
	if f.slow {
		return n / 4
	}
	return n
}

// onMem is a fixture in a new memkv store.
func onMem(t *testing.T) *fixture {
	return newFixture(t, memkv.New(memkv.Options{}), fdbpq.RawValues)
}

// newFixture makes a fixture in db, with roots of its own.
func newFixture(t *testing.T, db kv.Database, format fdbpq.ValueFormat) *fixture {
	random := rand.Text()[:10]
	return newFixtureIn(t, db, "pq-"+random, "q-"+random, format)
}

// newFixtureIn makes a fixture in db. When the test ends, it checks the invariants of the
// Keyspace, removes its keys and closes db.
func newFixtureIn(
	t *testing.T, db kv.Database, priority, fifo string, format fdbpq.ValueFormat,
) *fixture {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	f := &fixture{T: t, ctx: ctx, db: db, format: format, priority: priority, fifo: fifo}
	f.Keyspace = must(fdbpq.NewKeyspace(f.priority, f.fifo, format))
	f.batcher = fdbpq.NewBatcher(db, f.Keyspace)
	t.Cleanup(f.stop)

	return f
}

func (f *fixture) stop() {
	f.ctx = context.Background() // that of the test has ended
	if !f.corrupt {
		f.check()
	}

	write(f, func(tx kv.Transaction) {
		for _, root := range []string{
			f.priority, f.priority + "-queues", f.priority + "-x", f.priority + "-store", f.fifo,
			f.fifo + "-queues",
		} {
			tx.ClearRange(everything(root))
		}
		for _, key := range f.recordKeys() {
			tx.Clear(key)
		}
	})
	wantError(f.T, f.db.Close(), nil)
}

// everything is the range of all keys below a root.
func everything(root string) kv.Range {
	begin, end := tuple.NewSubspace(tuple.Tuple{root}).Range()
	return kv.Range{Begin: begin, End: end}
}

// check checks the invariants of the keyspace.
func (f *fixture) check() fdbpqtest.Contents {
	f.Helper()
	contents, err := fdbpqtest.CheckInvariants(f.ctx, f.db, f.priority, f.fifo)
	if err != nil {
		f.Errorf("invariants:\n%v", err)
	}

	return contents
}

func (f *fixture) queue(name string) *fdbpq.PriorityQueue { return must(f.PriorityQueue(name)) }

func (f *fixture) fifoQueue(name string) *fdbpq.Queue { return must(f.Queue(name)) }

// must panics on an error, because most callers cannot go on without the value.
func must[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}

// do runs fn in a transaction and returns its error.
func do[V any](f *fixture, fn func(tx kv.Transaction) (V, error)) (V, error) {
	return kv.Transact(f.ctx, f.db, fn)
}

// write runs fn in a transaction that must succeed.
func write(f *fixture, fn func(tx kv.Transaction)) {
	f.Helper()
	err := kv.UpdateIdempotent(f.ctx, f.db, func(tx kv.Transaction) error {
		fn(tx)
		return nil
	})
	if err != nil {
		f.Fatalf("writing: %v", err)
	}
}

// applyIn runs one operation in a transaction.
func applyIn(tx kv.Transaction, op fdbpq.Op) fdbpq.Result {
	return must(fdbpq.Apply(tx, []fdbpq.Op{op}, time.Now()))[0]
}

// stored returns all pairs below a root.
func (f *fixture) stored(root string) []kv.KeyValue {
	f.Helper()
	pairs := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]kv.KeyValue, error) {
		return r.GetRange(everything(root), kv.RangeOptions{}).Get()
	}))
	return pairs
}

// push pushes one value in a transaction of its own.
func (f *fixture) push(q *fdbpq.PriorityQueue, priority int64, value string) fdbpq.ID {
	f.Helper()
	return must(do(f, func(tx kv.Transaction) (fdbpq.ID, error) {
		return q.Push(tx, priority, message(value))
	}))
}

// take runs a method that returns an item, such as q.PopMin, in a transaction
// of its own.
func (f *fixture) take(method func(kv.Transaction) (fdbpq.Item, error)) (fdbpq.Item, error) {
	return do(f, method)
}

// look runs a method that reads an item, such as q.PeekMin.
func (f *fixture) look(method func(kv.Reader) (fdbpq.Item, error)) (fdbpq.Item, error) {
	return kv.ReadTransact(f.ctx, f.db, method)
}

// values takes items with method until the queue is empty, 10,000 at most.
func (f *fixture) values(method func(kv.Transaction) (fdbpq.Item, error)) []string {
	f.Helper()
	var list []string

	for range 10_000 {
		item, err := f.take(method)
		if err != nil {
			wantError(f.T, err, fdbpq.ErrEmpty)
			return list
		}

		list = append(list, string(item.Value))
	}

	f.Fatal("the queue does not become empty")
	return nil
}

// length returns the length of a queue.
func (f *fixture) length(q interface {
	Len(kv.Reader) (int64, error)
}) int64 {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, q.Len))
}

// apply runs a batch that must succeed.
func (f *fixture) apply(ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	results, err := f.batcher.Apply(f.ctx, ops)
	if err != nil {
		f.Fatalf("Apply: %v", err)
	}

	return results
}

// read runs operations in a transaction that only reads.
func (f *fixture) read(ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]fdbpq.Result, error) {
		return fdbpq.Read(r, ops)
	}))
}

func message(value string) fdbpq.Message { return fdbpq.Message{Value: []byte(value)} }

func opPush(q fdbpq.Target, priority int64, value string) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: priority, Message: message(value)}
}

// The operations, without a queue.
var (
	opPopMin  = fdbpq.Op{Kind: fdbpq.OpPop, End: fdbpq.Front}
	opPopMax  = fdbpq.Op{Kind: fdbpq.OpPop, End: fdbpq.Back}
	opPeekMin = fdbpq.Op{Kind: fdbpq.OpPeek, End: fdbpq.Front}
	opPeekMax = fdbpq.Op{Kind: fdbpq.OpPeek, End: fdbpq.Back}
	opLen     = fdbpq.Op{Kind: fdbpq.OpLen}
	opNoItem  = fdbpq.Op{Kind: fdbpq.OpPush} // pushes an empty message
)

func op(what fdbpq.Op, q fdbpq.Target) fdbpq.Op {
	what.Queue = q
	return what
}

// summary returns results as text: values, lengths, errors, "" for pushes.
func summary(ops []fdbpq.Op, results []fdbpq.Result) []string {
	list := make([]string, len(results))
	for i, r := range results {
		switch {
		case r.Err != nil:
			list[i] = r.Err.Error()
		case ops[i].Kind == fdbpq.OpLen:
			list[i] = fmt.Sprint(r.Len)
		default:
			list[i] = string(r.Item.Value)
		}
	}

	return list
}

func wantEqual[V any](t *testing.T, what string, got, want V) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return // formatting long values takes long
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s: got %.2000s, want %.2000s", what, g, w)
	}
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error is %v, want %v", got, want)
	}
}

// wantErrors checks the first results against as many errors, or all against none.
func wantErrors(t *testing.T, results []fdbpq.Result, want ...error) {
	t.Helper()
	if want == nil {
		want = make([]error, len(results))
	}

	for i, err := range want {
		if !errors.Is(results[i].Err, err) {
			t.Errorf("error of operation %d is %v, want %v", i, results[i].Err, err)
		}
	}
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// duePage is how many entries of the time index a transaction handles.
const duePage = due.Page

// answerLife is how long staged pops may take to collect their items.
const answerLife = 30 * time.Second

// leave gives an item from each of the ends, if there is one, to a staged pop that never collects
// it.
func (f *fixture) leave(q fdbpq.Target, now time.Time, ends ...fdbpq.End) {
	f.Helper()
	l := q.Layout()

	write(f, func(tx kv.Transaction) {
		g := state.NewLedger(tx, l, now, nil)
		for _, end := range ends {
			first := kv.RangeOptions{Limit: 1, Reverse: end == fdbpq.Back}
			for _, pair := range must(tx.GetRange(l.ItemRange(), first).Get()) {
				id := must(l.ParseItem(pair.Key))
				g.Detach(pair.Key, &id)
				request := codec.NewID(0, 0, now, codec.UniqueBytes(1), 0).Random
				a := codec.Answer{Deadline: now.Add(answerLife), Item: &id}
				state.SetUntil(l, tx, a.Deadline, l.PartKey(codec.PartAnswer, request), a.Encode())
				tx.Set(l.PartKey(codec.PartValue, request), pair.Value)
			}
		}
		wantError(f.T, g.Flush(), nil)
	})
}

// clock is a clock that moves when told to, and by step each time it is read.
type clock struct {
	micros, step atomic.Int64
}

func newClock(at time.Time) *clock {
	c := &clock{}
	c.micros.Store(at.UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Add(c.step.Load())) }
func (c *clock) advance(d time.Duration)  { c.micros.Add(d.Microseconds()) }
func (c *clock) stepping(d time.Duration) { c.step.Store(d.Microseconds()) }

// setClock gives the Batcher a clock.
func (f *fixture) setClock() *clock {
	c := newClock(time.Now())
	f.batcher.SetNow(c.now)
	return c
}

// fill pushes values with priorities 0, 1, 2...
func (f *fixture) fill(q *fdbpq.PriorityQueue, values ...string) {
	f.Helper()
	for i, value := range values {
		f.push(q, int64(i), value)
	}
}

// spy is a store that reports reads and writes. Functions may be nil.
type spy struct {
	kv.Database
	asked func(method string, key []byte) // before it is done; of a range, its begin
	found func(pairs ...kv.KeyValue)      // by a read
}

func (s *spy) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := s.Database.Begin(ctx, o)
	return spiedTransaction{tx, spiedReader{tx, s, ""}}, err
}

func (s *spy) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := s.Database.BeginRead(ctx)
	return spiedReads{spiedReader{tx, s, ""}, tx}, err
}

type spiedReader struct {
	kv.Reader
	*spy
	snapshot string
}

func (r spiedReader) note(method string, key []byte) {
	if r.asked != nil {
		r.asked(r.snapshot+method, key)
	}
}

func (r spiedReader) report(pairs ...kv.KeyValue) {
	if r.found != nil {
		r.found(pairs...)
	}
}

func (r spiedReader) Get(key []byte) kv.Future[[]byte] {
	r.note("get", key)
	value, err := r.Reader.Get(key).Get()
	r.report(kv.KeyValue{Key: key, Value: value})
	return kv.Ready(value, err)
}

func (r spiedReader) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	r.note("range", span.Begin)
	pairs, err := r.Reader.GetRange(span, o).Get()
	r.report(pairs...)
	return kv.Ready(pairs, err)
}

type spiedReads struct {
	spiedReader
	ends interface{ Cancel() }
}

func (tx spiedReads) Cancel() { tx.ends.Cancel() }

type spiedTransaction struct {
	kv.Transaction
	r spiedReader
}

func (tx spiedTransaction) Get(key []byte) kv.Future[[]byte] { return tx.r.Get(key) }

func (tx spiedTransaction) GetRange(span kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return tx.r.GetRange(span, o)
}

func (tx spiedTransaction) Snapshot() kv.Reader {
	return spiedReader{tx.Transaction.Snapshot(), tx.r.spy, "snapshot "}
}

func (tx spiedTransaction) Set(key, value []byte) {
	tx.r.note("set", key)
	tx.Transaction.Set(key, value)
}

func (tx spiedTransaction) Clear(key []byte) {
	tx.r.note("clear", key)
	tx.Transaction.Clear(key)
}

func (tx spiedTransaction) ClearRange(span kv.Range) {
	tx.r.note("clear range", span.Begin)
	tx.Transaction.ClearRange(span)
}

func (tx spiedTransaction) Add(key []byte, delta int64) {
	tx.r.note("add", key)
	tx.Transaction.Add(key, delta)
}

func (tx spiedTransaction) CompareAndClear(key, value []byte) {
	tx.r.note("compare and clear", key)
	tx.Transaction.CompareAndClear(key, value)
}

func (tx spiedTransaction) AddReadConflict(span kv.Range) {
	tx.r.note("read conflict", span.Begin)
	tx.Transaction.AddReadConflict(span)
}

func (tx spiedTransaction) AddWriteConflict(span kv.Range) {
	tx.r.note("write conflict", span.Begin)
	tx.Transaction.AddWriteConflict(span)
}
