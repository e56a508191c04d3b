package staged

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

// engine is a kind of store to run tests on.
type engine struct {
	name   string
	format fdbpq.ValueFormat
	open   func(t *testing.T) kv.Database
}

func openMem(*testing.T) kv.Database { return memkv.New(memkv.Options{}) }

// engines returns those to run tests on: one, unless there is time for all of them.
func engines() []engine {
	list := []engine{{"mem", fdbpq.RawValues, openMem}}
	if harness.Nightly {
		list = append(list, engine{"mem/tuple", fdbpq.TupleValues, openMem})
	}

	return append(list,
		engine{"fdb", fdbpq.RawValues, func(t *testing.T) kv.Database { return testenv.FDB(t) }})
}

// subtest is t.Run in a bubble.
func subtest(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { testenv.Bubble(t, test) })
}

// fixture is a queue, with a clock that stands still unless told to move.
type fixture struct {
	*testing.T
	ctx context.Context
	db  kv.Database
	*fdbpq.Keyspace
	root    string // of priority queues
	q       *fdbpq.PriorityQueue
	target  fdbpq.Target // q, or a FIFO queue
	batcher *fdbpq.Batcher
	clock   *clock
	foreign bool // there are items that other programs do not count
}

func onEngines(t *testing.T, run func(f *fixture)) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { run(newFixture(t, e.open(t), e.format)) })
	}
}

func onMem(t *testing.T) *fixture { return newFixture(t, openMem(t), fdbpq.RawValues) }

// newFixture makes a queue in db. When the test ends, it checks the invariants, removes all keys
// and closes db.
func newFixture(t *testing.T, db kv.Database, format fdbpq.ValueFormat) *fixture {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	random := rand.Text()[:10]
	f := &fixture{T: t, ctx: ctx, db: db, root: "pq-" + random, clock: newClock()}
	f.Keyspace = must(fdbpq.NewKeyspace(f.root, "q-"+random, format))
	f.q = must(f.PriorityQueue("jobs"))
	f.target = f.q
	f.batcher = fdbpq.NewBatcher(db, f.Keyspace)
	f.batcher.SetNow(f.clock.now)

	t.Cleanup(func() {
		f.ctx = context.Background() // that of the test has ended
		f.check()

		f.write(func(tx kv.Transaction) {
			for _, root := range []string{f.root, "q-" + random} {
				for _, suffix := range []string{"", "-queues", "-x"} {
					begin, end := tuple.NewSubspace(tuple.Tuple{root + suffix}).Range()
					tx.ClearRange(kv.Range{Begin: begin, End: end})
				}
			}
		})
		wantError(f.T, db.Close(), nil)
	})

	return f
}

// check checks the invariants of the keyspace.
func (f *fixture) check() {
	f.Helper()
	_, err := fdbpqtest.CheckInvariants(f.ctx, f.db, f.root, "q"+f.root[2:])
	if err != nil && !f.foreign {
		f.Errorf("invariants:\n%v", err)
	}
}

// must panics on an error, because most callers cannot go on without the value.
func must[V any](value V, err error) V {
	if err != nil {
		panic(err)
	}
	return value
}

// write runs fn in a transaction that must succeed.
func (f *fixture) write(fn func(tx kv.Transaction)) {
	f.Helper()
	err := kv.UpdateIdempotent(f.ctx, f.db, func(tx kv.Transaction) error {
		fn(tx)
		return nil
	})
	if err != nil {
		f.Fatalf("writing: %v", err)
	}
}

// apply runs a batch that must succeed.
func (f *fixture) apply(ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	for i := range ops {
		if ops[i].Queue == nil {
			ops[i].Queue = f.target
		}
	}

	results, err := f.batcher.Apply(f.ctx, ops)
	if err != nil {
		f.Fatalf("Apply: %v", err)
	}

	return results
}

func push(priority int64, value string) fdbpq.Op {
	return fdbpq.Op{
		Kind:     fdbpq.OpPush,
		Priority: priority,
		Message:  fdbpq.Message{Value: []byte(value)},
	}
}

func (f *fixture) push(priority int64, value string) { f.Helper(); f.apply(push(priority, value)) }

// fill pushes values with priorities 0, 1, 2...
func (f *fixture) fill(values ...string) {
	f.Helper()
	for i, value := range values {
		f.push(int64(i), value)
	}
}

// popPlain pops without a Popper, by the clock of the test.
func (f *fixture) popPlain() (fdbpq.Item, error) {
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpPop})[0]
	return r.Item, r.Err
}

// wantValues pops all items without a Popper.
func (f *fixture) wantValues(what string, want ...string) {
	f.Helper()
	var got []string

	for {
		item, err := f.popPlain()
		if err != nil {
			wantError(f.T, err, fdbpq.ErrEmpty)
			break
		}

		got = append(got, string(item.Value))
	}
	wantList(f.T, what, got, want...)
}

func (f *fixture) length() int64 {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, f.q.Len))
}

// popper returns a new Popper, with the clock of the fixture.
func (f *fixture) popper() *Popper { return f.popperOf(f.db) }

func (f *fixture) popperOf(db kv.Database) *Popper {
	p := New(db, f.target)
	p.SetNow(f.clock.now)
	return p
}

// registerAbandoned puts requests of pops in line that nobody waits for: they are served, and
// nobody collects what they get.
func (f *fixture) registerAbandoned(ends ...fdbpq.End) {
	f.Helper()
	for _, end := range ends {
		err := kv.UpdateIdempotent(f.ctx, f.db, func(tx kv.Transaction) error {
			r := newRequest(f.target.Layout(), end, f.clock.now())
			line, claims, err := r.beginLook(tx)()
			if err == nil {
				err = r.register(tx, line, claims, f.clock.now())
			}

			return err
		})
		if err != nil {
			f.Fatalf("joining the line: %v", err)
		}
	}
}

// tryServe serves the line, once.
func (f *fixture) tryServe() error {
	_, err := f.popper().once(f.ctx, func(tx kv.Transaction) (*fdbpq.Result, error) {
		now := f.clock.now()
		return serve(tx, newRequest(f.target.Layout(), fdbpq.Front, now), false, now)
	})
	return err
}

func (f *fixture) serve() {
	f.Helper()
	if err := f.tryServe(); err != nil {
		f.Fatalf("serving: %v", err)
	}
}

// stored is what the store holds of the staged pops of a queue, as numbers of keys.
type stored struct {
	requests int         // of pops in line
	answers  int         // to pops that were served; those without a value say "empty"
	values   int         // of the items that answers give
	claims   int         // that a pop writes when it takes an item, and a later one removes
	due      int         // entries in the time index
	ends     []fdbpq.End // of the requests, in order
}

func (f *fixture) stored() (s stored) {
	f.Helper()
	l := f.target.Layout()

	_, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) (struct{}, error) {
		s = stored{}
		count := func(keys kv.Range) int {
			return len(must(r.GetRange(keys, kv.RangeOptions{}).Get()))
		}
		s.answers = count(codec.Within(l.PartPrefix(codec.PartAnswer)))
		s.values = count(codec.Within(l.PartPrefix(codec.PartValue)))
		s.claims = count(codec.Within(l.PartPrefix(codec.PartClaim)))
		s.due = count(l.KindRange(codec.KindDue))

		for _, pair := range must(r.GetRange(l.RequestRange(), kv.RangeOptions{}).Get()) {
			s.ends = append(s.ends, must(l.ParseRequest(pair)).End)
		}

		s.requests = len(s.ends)
		return struct{}{}, nil
	})
	wantError(f.T, err, nil)

	return s
}

// wantStored compares what is stored with want, except for due and ends.
func (f *fixture) wantStored(want stored) {
	f.Helper()
	got := f.stored()
	got.due, got.ends = 0, nil

	wantEqual(f.T, "stored of staged pops", got, want)
}

func (f *fixture) wantPop(pop func(context.Context) (fdbpq.Item, error), want string) {
	f.Helper()
	item, err := pop(f.ctx)
	if err != nil || string(item.Value) != want {
		f.Errorf("popped %.100q (error %v), want %.100q", item.Value, err, want)
	}
}

func (f *fixture) wantEmpty(p *Popper) {
	f.Helper()
	if item, err := p.PopMin(f.ctx); !errors.Is(err, fdbpq.ErrEmpty) {
		f.Errorf("popped %.100q (error %v), want ErrEmpty", item.Value, err)
	}
}

// clock is a clock that moves when told to, and by step each time it is read.
type clock struct {
	micros, step atomic.Int64
}

func newClock() *clock {
	c := &clock{}
	c.micros.Store(time.Now().UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Add(c.step.Load())) }
func (c *clock) advance(d time.Duration)  { c.micros.Add(d.Microseconds()) }
func (c *clock) stepping(d time.Duration) { c.step.Store(d.Microseconds()) }

// meddled is a store for one goroutine that lets tests intervene.
type meddled struct {
	kv.Database
	// begin is called before the n'th transaction begins, unless nil.
	begin func(n int)
	// write is called in place of the n'th commit of a transaction that wrote.
	write          func(n int, tx *meddledTransaction) error
	begins, writes int
}

func (h *meddled) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if h.begins++; h.begin != nil {
		h.begin(h.begins)
	}

	tx, err := h.Database.Begin(ctx, o)
	return &meddledTransaction{Transaction: tx, h: h}, err
}

type meddledTransaction struct {
	kv.Transaction
	h     *meddled
	wrote bool
	held  bool // to be committed later
}

func (tx *meddledTransaction) Set(key, value []byte) {
	tx.wrote = true
	tx.Transaction.Set(key, value)
}

func (tx *meddledTransaction) Clear(key []byte) {
	tx.wrote = true
	tx.Transaction.Clear(key)
}

func (tx *meddledTransaction) Commit() kv.Future[struct{}] {
	if !tx.wrote {
		return tx.Transaction.Commit()
	}

	tx.h.writes++
	return kv.Ready(struct{}{}, tx.h.write(tx.h.writes, tx))
}

func (tx *meddledTransaction) Cancel() {
	if !tx.held {
		tx.Transaction.Cancel()
	}
}

// commitNow is a commit without intervention.
func (tx *meddledTransaction) commitNow() error {
	_, err := tx.Transaction.Commit().Get()
	return err
}

// inParallel runs tests that spend most of their time waiting.
func inParallel[V any](list []V, test func(V)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 100)

	for _, v := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			test(v)
		})
	}

	wg.Wait()
}

// sequences returns all sequences of n elements.
func sequences[V any](n int, elements ...V) [][]V {
	list := [][]V{{}}
	for range n {
		var longer [][]V
		for _, sequence := range list {
			for _, v := range elements {
				longer = append(longer, append(slices.Clip(sequence), v))
			}
		}

		list = longer
	}

	return list
}

func wantEqual[V any](t *testing.T, what string, got, want V) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %s, want %s", what, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
}

func wantError(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error is %v, want %v", got, want)
	}
}

func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
