package fdbpq_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/race"
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
		for range race.Times(5, 2) {
			var ops []fdbpq.Op
			for range want {
				ops = append(ops, op(opPopMin, q))
			}
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
				for _, r := range f.apply(back[:n]...) {
					wantError(f.T, r.Err, nil)
				}
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
	for _, abandoned := range unanswered {
		onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
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
