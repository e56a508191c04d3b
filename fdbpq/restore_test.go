package fdbpq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func opRestore(q fdbpq.Target, item fdbpq.Item) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpRestore, Queue: q, Item: &item}
}

// foreign writes an item as other programs do.
func (f *fixture) foreign(space tuple.Subspace, place tuple.Tuple, value string) {
	f.Helper()
	random := make([]byte, 20)
	copy(random, value)
	encoded := []byte(value)

	if f.format == fdbpq.TupleValues && value != "" {
		encoded = tuple.Tuple{encoded}.Pack()
	}

	write(f, func(tx kv.Transaction) { tx.Set(space.Pack(append(place, random)), encoded) })
}

// itemsStored returns the pairs of the queues, without their entries in the lists.
func (f *fixture) itemsStored() string {
	f.Helper()
	return fmt.Sprintf("%q %q", f.stored(f.priority), f.stored(f.fifo))
}

// filled returns queues with items of all kinds, in the order in which they are served.
func (f *fixture) filled() (q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, want, wantFIFO []string) {
	f.Helper()
	q, fifo = f.queue("a"), f.fifoQueue("a")
	long := string(pattern(200_000, 1))

	with := func(op fdbpq.Op) fdbpq.Op {
		op.Message.Headers = map[string][]string{"B": {"1", "2"}, "A": {""}}
		return op
	}

	for _, target := range []fdbpq.Target{q, fifo} {
		f.apply(
			opPush(target, 1, "leased twice"),
			opPush(target, 1, "plain"),
			with(opPush(target, 1, "headers")),
			with(opPush(target, 1, long)),
			opPush(target, 1, long[1:]),
			opPush(target, 2, ""),
			opPush(target, 3, "snoozed"),
		)
	}

	f.foreign(items(f.priority, "a"), tuple.Tuple{int64(1), int64(99)}, "foreign")
	f.foreign(items(f.priority, "a"), tuple.Tuple{int64(1), int64(100)}, "")
	f.foreign(items(f.fifo, "a"), tuple.Tuple{int64(99)}, "foreign")

	for _, target := range []fdbpq.Target{q, fifo} {
		for range 2 {
			lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: target})[0].Lease
			f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: target, Token: lease.Token})
		}
	}

	lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.Back})[0].Lease
	f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: lease.Token, Uncounted: true})
	want = []string{
		"leased twice", "plain", "headers", long, long[1:], "foreign", "", "", "snoozed",
	}
	wantFIFO = []string{
		"leased twice", "plain", "headers", long, long[1:], "", "snoozed", "foreign",
	}

	return q, fifo, want, wantFIFO
}

// A queue whose items were popped and restored, in whatever order, is byte for byte what it was,
// and listed again.
func TestRestore(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		q, fifo, want, wantFIFO := f.filled()
		before := f.itemsStored()

		for range harness.RaceTimes(5, 2) {
			ops := slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, len(want))
			for range wantFIFO {
				ops = append(ops, op(opPopMin, fifo))
			}

			results := f.apply(ops...)
			wantList(f.T, "popped", summary(ops, results), slices.Concat(want, wantFIFO)...)

			write(f, func(tx kv.Transaction) {
				tx.ClearRange(everything(f.priority + "-queues"))
				tx.ClearRange(everything(f.fifo + "-queues"))
			})

			var back []fdbpq.Op
			for i, r := range results {
				back = append(back, opRestore(ops[i].Queue, r.Item))
			}

			random.Shuffle(len(back), func(i, j int) { back[i], back[j] = back[j], back[i] })
			for len(back) > 0 {
				n := 1 + random.IntN(len(back))
				wantErrors(f.T, f.apply(back[:n]...))
				back = back[n:]
			}

			if after := f.itemsStored(); after != before {
				f.Errorf("stored\n%.5000s\nwant\n%.5000s", after, before)
			}
			f.check() // that they are listed, too
		}

		results := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q},
			fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.Back})
		if r := results[0]; string(r.Item.Value) != "leased twice" || r.Lease.Deliveries != 3 ||
			r.Lease.Token.Fence <= 2 {
			f.Errorf("leased %+v", r)
		}

		if r := results[1]; string(r.Item.Value) != "snoozed" || r.Lease.Deliveries != 1 {
			f.Errorf("leased %+v", r)
		}
	})
}

// Programs can restore items in their own transactions.
func TestRestoreInTransactions(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo, want, wantFIFO := f.filled()
		before := f.itemsStored()

		_, err := do(f, func(tx kv.Transaction) (struct{}, error) {
			item, err := q.PopMax(tx)
			if err == nil {
				err = applyIn(tx, opRestore(q, item)).Err
			}

			return struct{}{}, err
		})
		wantError(f.T, err, nil)

		item, err := f.take(fifo.Dequeue)
		wantError(f.T, err, nil)

		write(f, func(tx kv.Transaction) {
			wantError(f.T, applyIn(tx, opRestore(fifo, item)).Err, nil)
		})

		if after := f.itemsStored(); after != before {
			f.Errorf("stored\n%.5000s\nwant\n%.5000s", after, before)
		}
		wantList(f.T, "left", f.values(q.PopMin), want...)
		wantList(f.T, "left in fifo", f.values(fifo.Dequeue), wantFIFO...)
	})
}

// Settle undoes the pops and completes the restores of a batch of unknown outcome exactly once,
// even if its own commits are of unknown outcome.
func TestSettle(t *testing.T) {
	// By default each script has one of the faults before it, nightly all of them.
	for n := range harness.Times(1, len(unanswered)) {
		onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
			n++
			abandoned := unanswered[n%len(unanswered)]
			lease := f.leaseSome(q, 1, time.Hour)[0]
			f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: lease}) // "0" has a history
			before := f.itemsStored()
			popped := f.apply(op(opPopMin, q), op(opPopMax, q), op(opPopMin, fifo))
			ops := []fdbpq.Op{
				opRestore(q, popped[0].Item),
				opRestore(q, popped[1].Item),
				opRestore(fifo, popped[2].Item),
				op(opPopMin, q), op(opPopMin, q), op(opPopMax, q), op(opPopMin, fifo),
			}
			f.abandon(abandoned, ops...)

			for i := range ops {
				ops[i] = fdbpq.Op{} // the caller's again
			}

			for i := range popped {
				popped[i].Item = fdbpq.Item{}
			}

			ready()
			if err := f.batcher.Settle(f.ctx); err != nil {
				f.Fatalf("after %v: Settle: %v", abandoned, err)
			}

			f.calm()
			if after := f.itemsStored(); after != before {
				f.Errorf("after %v: stored\n%s\nwant\n%s", abandoned, after, before)
			}
			wantError(f.T, f.batcher.Settle(f.ctx), nil)
			f.check()

			f.apply(opPush(q, 9, "next")) // removes the receipts
			wantList(f.T, fmt.Sprint("after ", abandoned), f.values(q.PopMin),
				"0", "1", "2", "3", "4", "next")
			wantList(f.T, fmt.Sprint("after ", abandoned), f.values(fifo.Dequeue),
				"f0", "f1", "f2", "f3", "f4")
		})
	}
}

// unanswered are the faults that leave the outcome of a commit unknown.
var unanswered = []faultkv.Fault{
	faultkv.UnknownLost, faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext,
}

// commitFaults are the rates of faults that leave the outcome of many commits unknown.
var commitFaults = map[faultkv.Fault]float64{
	faultkv.Conflict:          0.1,
	faultkv.UnknownLost:       0.1,
	faultkv.UnknownMade:       0.1,
	faultkv.UnknownBeforeNext: 0.1,
	faultkv.UnknownDuringNext: 0.1,
}

// unsure is a fixture whose store can have faults.
type unsure struct {
	*fixture
	inner   kv.Database
	faults  *faultkv.DB
	watched *hooked
}

// calm makes the commits that were delayed. From then on the fixture, but not the Batchers,
// uses the store without faults.
func (f *unsure) calm() {
	f.faults.Land()
	f.db = f.inner
}

func newUnsure(t *testing.T, o faultkv.Options) *unsure {
	return newUnsureWith(t, o, fdbpq.RawValues)
}

func newUnsureWith(t *testing.T, o faultkv.Options, format fdbpq.ValueFormat) *unsure {
	return newFixture(t, memkv.New(memkv.Options{}), format).unsure(o)
}

// unsure puts faults between the fixture and its store.
func (f *fixture) unsure(o faultkv.Options) *unsure {
	inner := f.db
	faults := faultkv.New(inner, o)
	watched := &hooked{Database: faults}
	f.db, f.batcher = watched, fdbpq.NewBatcher(watched, f.Keyspace)
	return &unsure{f, inner, faults, watched}
}

// onFaults runs a test on onStores, once with each fault that such a store can have.
func onFaults(
	t *testing.T, list []faultkv.Fault, run func(f *unsure, fault faultkv.Fault),
) {
	for _, fault := range list {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			onStores(t, func(f *fixture) {
				if fault == faultkv.UnknownDuringNext && f.db.Traits().Serial {
					f.Skip("a serial store runs one transaction at a time")
				}
				run(f.unsure(faultkv.Options{}), fault)
			})
		})
	}
}

// scripts are all sequences of one to three faults followed by a good commit.
func scripts() [][]faultkv.Fault {
	var list [][]faultkv.Fault
	others := []faultkv.Fault{faultkv.None, faultkv.Conflict, faultkv.TooOld}

	for _, first := range unanswered {
		list = append(list, []faultkv.Fault{first})
		for _, second := range append(others, unanswered...) {
			list = append(list, []faultkv.Fault{first, second})
			for _, third := range unanswered {
				list = append(list, []faultkv.Fault{first, second, third})
				if harness.Nightly {
					list = append(list, []faultkv.Fault{faultkv.Conflict, first, second, third})
				}
			}
		}
	}

	return list
}

// onScripts runs a test once for each script, with the items 0 to 4 in queue "a", and "f0" to
// "f4" in FIFO queue "a". ready starts the script.
func onScripts(
	t *testing.T, run func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()),
) {
	for _, script := range scripts() {
		synctest.Test(t, func(t *testing.T) { // waits between attempts take no time
			t.Log(script)
			f := newUnsure(t, faultkv.Options{})
			q, fifo := f.queue("a"), f.fifoQueue("a")

			for i := range 5 {
				push := opPush(q, int64(i/2), fmt.Sprint(i))
				push.Message.Headers = map[string][]string{"I": {fmt.Sprint(i)}}
				f.apply(push, opPush(fifo, 0, fmt.Sprint("f", i)))
			}

			run(f, q, fifo, func() { f.faults.Next(script...) })
			f.calm()

			if n := len(f.check().Receipts); n != len(f.stored(f.priority+"-x")) {
				f.Errorf("%d Batchers have %d receipts", n, len(f.stored(f.priority+"-x")))
			}
		})
	}
}

// A batch of all kinds of operations has the results of one attempt, whatever becomes of its
// commits.
func TestUnknownMixedBatch(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		popped := f.apply(op(opPopMin, q), op(opPopMin, fifo))
		ready()

		ops := []fdbpq.Op{
			op(opPopMin, q), opPush(q, -1, "first"), opPush(q, 0, "third"), op(opPeekMin, q),
			op(opLen, q), op(opPeekMax, q), op(opPopMin, fifo), opPush(fifo, 0, "last"),
			op(opPopMin, f.queue("none")), opRestore(fifo, popped[1].Item),
			opRestore(q, popped[0].Item),
		}

		want := []string{"first", "", "", "0", "4", "4", "f0", "", fdbpq.ErrEmpty.Error(), "", ""}
		results := f.apply(ops...)
		wantList(f.T, "results", summary(ops, results), want...)
		wantEqual(f.T, "headers", results[5].Item.Headers["I"], []string{"4"})

		f.calm()
		wantEqual(f.T, "id of the push", f.order(q)[2], results[2].Item.ID)
		wantList(f.T, "left", f.values(q.PopMin), "0", "1", "third", "2", "3", "4")
		wantList(f.T, "left in fifo", f.values(fifo.Dequeue), "f1", "f2", "f3", "f4", "last")
	})
}

// applyUntilUnknown runs a batch whose context ends when a commit fails with fault.
func (f *unsure) applyUntilUnknown(fault faultkv.Fault, ops ...fdbpq.Op) ([]fdbpq.Result, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.watched.unknown = cancel
	defer func() { f.watched.unknown = nil }()
	f.faults.Next(fault)

	return f.batcher.Apply(ctx, ops)
}

// abandon is applyUntilUnknown for a batch that must end like that.
func (f *unsure) abandon(fault faultkv.Fault, ops ...fdbpq.Op) {
	f.Helper()
	results, err := f.applyUntilUnknown(fault, ops...)
	wantError(f.T, err, kv.ErrCommitUnknown)
	wantError(f.T, err, context.Canceled)

	if results != nil {
		f.Errorf("a batch of unknown outcome has results: %+v", results)
	}
}

// An attempt of unknown outcome cannot commit once the batch has its results, not even after its
// receipt was removed.
func TestFirstAttemptLandsAfterTheAnswer(t *testing.T) {
	for _, later := range []int{0, 1, 2, 5} { // batches, which remove the receipt
		for _, settled := range []bool{false, true} {
			f := newUnsure(t, faultkv.Options{})
			q, fifo := f.queue("a"), f.fifoQueue("a")
			f.apply(opPush(q, 1, "a"), opPush(q, 2, "b"), opPush(fifo, 0, "c"))
			held := &holding{Database: f.inner}
			b := fdbpq.NewBatcher(held, f.Keyspace)
			ctx, cancel := context.WithCancel(f.ctx)

			if settled {
				held.unknown = cancel
			}

			ops := []fdbpq.Op{opPush(f.queue("other"), 3, "new"), opPush(fifo, 0, "new")}
			// The first commit has an unknown outcome. Apply tries again, or is cancelled, and
			// Settle makes sure that nothing was pushed.
			_, err := b.Apply(ctx, ops)
			cancel()

			if settled != kv.MaybeCommitted(err) {
				t.Errorf("Apply: %v", err)
			}
			wantError(t, b.Settle(f.ctx), nil)

			for range later {
				must(b.Apply(f.ctx, []fdbpq.Op{opPush(q, 9, "later")}))
			}

			// Only now the first attempt reaches the store.
			_, err = held.first.Commit().Get()
			wantError(t, err, kv.ErrConflict)

			want := int64(2) // "c" and the new one
			if settled {
				want = 1
			}
			wantEqual(t, "items", f.length(fifo), want)
		}
	}
}

// holding keeps the first transaction that should commit, returns an unknown outcome, and
// calls unknown.
type holding struct {
	kv.Database
	unknown func()
	first   kv.Transaction
}

func (h *holding) Begin(_ context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	// Not with the caller's context: a commit in flight outlives it.
	tx, err := h.Database.Begin(context.Background(), o)
	return heldTransaction{tx, h}, err
}

type heldTransaction struct {
	kv.Transaction
	holding *holding
}

func (tx heldTransaction) Commit() kv.Future[struct{}] {
	if tx.holding.first != nil {
		return tx.Transaction.Commit()
	}

	tx.holding.first = tx.Transaction
	if tx.holding.unknown != nil {
		tx.holding.unknown()
	}

	return kv.Ready(struct{}{}, kv.ErrCommitUnknown)
}

func (tx heldTransaction) Cancel() {
	if tx.Transaction != tx.holding.first {
		tx.Transaction.Cancel()
	}
}

// An item that expires while its batch is settled is counted once, whichever attempt commits.
func TestSettleCountsExpiredOnce(t *testing.T) {
	for _, fault := range []faultkv.Fault{
		faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext,
	} {
		// The clock moves by 200 ms with each look, so the item expires between others each time.
		for ttl := time.Second; ttl < 4*time.Second; ttl += 100 * time.Millisecond {
			f := newUnsure(t, faultkv.Options{})
			begin := time.Now()
			var calls atomic.Int64
			f.batcher.SetNow(func() time.Time {
				return begin.Add(time.Duration(calls.Add(1)) * 200 * time.Millisecond)
			})
			q := f.queue("a")
			f.apply(withTTL(opPush(q, 1, "v"), ttl))

			_, err := f.applyUntilUnknown(faultkv.UnknownMade, op(opPopMin, q))
			if !kv.MaybeCommitted(err) {
				continue // it has expired already
			}

			f.faults.Next(fault)
			wantError(t, f.batcher.Settle(f.ctx), nil)

			f.calm()
			all := f.sweepDue(begin.Add(time.Hour), q).expired + f.batcher.SideEffects().Expired
			wantEqual(t, fmt.Sprint(fault, ttl), all, 1)
		}
	}
}

// Popped items that do not fit into one transaction return in parts, even if they take much more
// room than their values have bytes.
func TestSettleOfMuchData(t *testing.T) {
	large := fdbpq.Message{Value: pattern(fdbpq.MaxMessageSize/2+1, 1)}
	for name, c := range map[string]struct {
		format   fdbpq.ValueFormat
		queue    string
		n        int
		priority int64
		message  fdbpq.Message
		script   []faultkv.Fault
	}{
		"values": {queue: "a", n: 5, message: large}, // two do not fit together
		"faults": {queue: "a", n: 5, message: large, script: unanswered},
		"zeros": { // take two bytes each in tuples
			format:  fdbpq.TupleValues,
			queue:   "a",
			n:       300,
			message: fdbpq.Message{Value: make([]byte, 45_000)},
		},
		"keys": { // long ones, several of each item
			queue:    strings.Repeat("x", 128),
			n:        6500,
			priority: 1 << 60,
			message: fdbpq.Message{
				Value:   make([]byte, 800),
				Headers: map[string][]string{"A": {"b"}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newUnsureWith(t, faultkv.Options{}, c.format)
			q := f.queue(c.queue)
			push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: c.priority, Message: c.message}

			for some := range slices.Chunk(slices.Repeat([]fdbpq.Op{push}, c.n), min(c.n/5, 100)) {
				f.apply(some...)
			}

			before := f.stored(f.priority)
			f.abandon(faultkv.UnknownMade, slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, c.n)...)
			f.faults.Next(c.script...)

			wantError(t, f.batcher.Settle(f.ctx), nil)

			f.calm()
			if !slices.EqualFunc(f.stored(f.priority), before, func(a, b kv.KeyValue) bool {
				return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
			}) {
				t.Error("the queue is not as it was")
			}
		})
	}
}

// If a batch cannot start because an earlier one cannot be settled, its error says that nothing
// happened.
func TestUnsettledBatchBlocksTheNext(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q := f.queue("a")
	f.apply(opPush(q, 1, "v"))
	f.abandon(faultkv.UnknownMade, op(opPopMin, q))
	f.faults.SetOutage(true)

	_, err := f.batcher.Apply(f.ctx, []fdbpq.Op{opPush(q, 2, "w")})
	wantError(t, err, kv.ErrUnavailable)
	if kv.MaybeCommitted(err) {
		t.Errorf("the push was not tried, and the error is %v", err)
	}

	f.faults.SetOutage(false)
	_, err = f.applyUntilUnknown(faultkv.UnknownLost, opPush(q, 2, "w"))
	wantError(t, err, context.Canceled)
	if kv.MaybeCommitted(err) {
		t.Errorf("the push was not tried, and the error is %v", err)
	}
	wantList(t, "values", summary(make([]fdbpq.Op, 1), f.apply(op(opPopMin, q))), "v")
}

// SweepReceipts removes the receipts of dead Batchers that are older than it is told, and no
// others, and ends with its context.
func TestSweepReceipts(t *testing.T) {
	const pages, onPage = 5, 500
	const young = pages * onPage / 2

	onEngines(t, func(f *fixture) {
		f.corrupt = true // half of the receipts are of no Batcher
		now := time.Now()
		space := tuple.NewSubspace(tuple.Tuple{f.priority + "-x"})

		for page := range pages {
			write(f, func(tx kv.Transaction) {
				for i := range onPage {
					age := time.Hour * time.Duration(i%2) * 3 // every other one is three hours old
					receipt := tuple.Tuple{now.Add(-age).UnixMicro(), 1, 0}
					tx.Set(space.Pack(tuple.Tuple{fmt.Append(nil, page), i}), receipt.Pack())
				}
			})
		}

		for _, oldest := range []time.Duration{2 * time.Hour, 4 * time.Hour} {
			wantError(f.T, fdbpq.SweepReceipts(f.ctx, f.db, f.Keyspace, oldest), nil)
			wantEqual(f.T, "receipts", len(f.stored(f.priority+"-x")), young)
		}

		ended, cancel := context.WithCancel(f.ctx)
		cancel()
		err := fdbpq.SweepReceipts(ended, f.db, f.Keyspace, 0)

		if !errors.Is(err, context.Canceled) {
			f.Errorf("sweeping with an ended context: %v", err)
		}
	})
}

// An item that another program stored in the other format is restored with the same bytes.
func TestSettleKeepsTheStoredBytes(t *testing.T) {
	f := newUnsureWith(t, faultkv.Options{}, fdbpq.TupleValues)
	q := f.queue("a")
	key := items(f.priority, "a").Pack(tuple.Tuple{int64(1), int64(0), make([]byte, 20)})
	write(f.fixture, func(tx kv.Transaction) { tx.Set(key, []byte("no tuple")) })
	f.abandon(faultkv.UnknownMade, op(opPopMin, q))

	wantError(t, f.batcher.Settle(f.ctx), nil)
	f.wantStored(key, []byte("no tuple"))
	wantList(t, "value", f.values(q.PopMin), "no tuple")
}
