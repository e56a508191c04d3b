package fdbpq_test

import (
	"fmt"
	"slices"
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

// itemsStored returns what is stored of queues, without what says when they were listed.
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
		f.apply(opPush(target, 1, "leased twice"), opPush(target, 1, "plain"), with(opPush(target, 1, "headers")),
			with(opPush(target, 1, long)), opPush(target, 1, long[1:]), opPush(target, 2, ""), opPush(target, 3, "snoozed"))
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
	want = []string{"leased twice", "plain", "headers", long, long[1:], "foreign", "", "", "snoozed"}
	wantFIFO = []string{"leased twice", "plain", "headers", long, long[1:], "", "snoozed", "foreign"}
	return q, fifo, want, wantFIFO
}

// A queue whose items were popped and restored, in whatever order, is byte for byte as it
// was before, and is listed again.
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
		results := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.Back})
		if r := results[0]; string(r.Item.Value) != "leased twice" || r.Lease.Deliveries != 3 || r.Lease.Token.Fence <= 2 {
			f.Errorf("leased %+v", r)
		}
		if r := results[1]; string(r.Item.Value) != "snoozed" || r.Lease.Deliveries != 1 {
			f.Errorf("leased %+v", r)
		}
	})
}

// Programs restore in their own transactions, too.
func TestRestoreInTransactions(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo, want, wantFIFO := f.filled()
		before := f.itemsStored()
		_, err := do(f, func(tx kv.Transaction) (struct{}, error) {
			item, err := q.PopMax(tx)
			if err == nil {
				err = q.Restore(tx, &item)
			}
			return struct{}{}, err
		})
		wantError(f.T, err, nil)
		item, err := f.take(fifo.Dequeue)
		wantError(f.T, err, nil)
		_, err = do(f, func(tx kv.Transaction) (struct{}, error) { return struct{}{}, fifo.Restore(tx, &item) })
		wantError(f.T, err, nil)
		if after := f.itemsStored(); after != before {
			f.Errorf("stored\n%.5000s\nwant\n%.5000s", after, before)
		}
		wantList(f.T, "left", f.values(q.PopMin), want...)
		wantList(f.T, "left in fifo", f.values(fifo.Dequeue), wantFIFO...)
	})
}

// A batch that is given up without knowing whether it committed restores its items all the same, and its pops are undone,
// exactly once, even if the commits that do that have unknown outcomes, too.
func TestSettle(t *testing.T) {
	for n := range harness.Times(1, len(unanswered)) { // by default each script has one of these faults before it
		onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
			n++
			abandoned := unanswered[n%len(unanswered)]
			f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: f.leaseSome(q, 1, time.Hour)[0]}) // "0" has a history
			before := f.itemsStored()
			popped := f.apply(op(opPopMin, q), op(opPopMax, q), op(opPopMin, fifo))
			ops := []fdbpq.Op{opRestore(q, popped[0].Item), opRestore(q, popped[1].Item), opRestore(fifo, popped[2].Item), op(opPopMin, q), op(opPopMin, q),
				op(opPopMax, q), op(opPopMin, fifo)}
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
			wantList(f.T, fmt.Sprint("after ", abandoned), f.values(q.PopMin), "0", "1", "2", "3", "4", "next")
			wantList(f.T, fmt.Sprint("after ", abandoned), f.values(fifo.Dequeue), "f0", "f1", "f2", "f3", "f4")
		})
	}
}

// unanswered are the faults that leave the outcome of a commit unknown.
var unanswered = []faultkv.Fault{
	faultkv.UnknownLost, faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext,
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
	inner := memkv.New(memkv.Options{})
	faults := faultkv.New(inner, o)
	watched := &hooked{Database: faults}
	return &unsure{newFixture(t, watched, format), inner, faults, watched}
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
func onScripts(t *testing.T, run func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func())) {
	for _, script := range scripts() {
		synctest.Test(t, func(t *testing.T) { // waits between attempts take no time
			t.Log(script)
			f := newUnsure(t, faultkv.Options{})
			q, fifo := f.queue("a"), f.fifoQueue("a")
			for i := range 5 {
				m := fdbpq.Message{Value: fmt.Append(nil, i), Headers: map[string][]string{"I": {fmt.Sprint(i)}}}
				f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i / 2), Message: m}, opPush(fifo, 0, fmt.Sprint("f", i)))
			}
			run(f, q, fifo, func() { f.faults.Next(script...) })
			f.calm()
			if n := len(f.check().Receipts); n != len(f.stored(f.priority+"-x")) {
				f.Errorf("%d Batchers have %d receipts", n, len(f.stored(f.priority+"-x")))
			}
		})
	}
}

func TestUnknownMixedBatch(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		popped := f.apply(op(opPopMin, q), op(opPopMin, fifo))
		ready()
		ops := []fdbpq.Op{
			op(opPopMin, q), opPush(q, -1, "first"), opPush(q, 0, "third"), op(opPeekMin, q), op(opLen, q),
			op(opPeekMax, q), op(opPopMin, fifo), opPush(fifo, 0, "last"), op(opPopMin, f.queue("none")),
			opRestore(fifo, popped[1].Item), opRestore(q, popped[0].Item),
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
