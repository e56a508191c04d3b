package fdbpq_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// unanswered are the faults that leave the outcome of a commit unknown.
var unanswered = []faultkv.Fault{
	faultkv.UnknownLost, faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext,
}

// unsure is a fixture whose store can have faults.
type unsure struct {
	*fixture
	inner   kv.Database
	faults  *faultkv.DB
	watched *watched
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
	watched := &watched{Database: faults}
	return &unsure{newFixture(t, watched, format), inner, faults, watched}
}

// watched reports when a commit has had an unknown outcome.
type watched struct {
	kv.Database
	unknown func() // nil if nobody wants to know
}

func (w *watched) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := w.Database.Begin(ctx, o)
	return watchedTransaction{tx, w}, err
}

type watchedTransaction struct {
	kv.Transaction
	watched *watched
}

func (tx watchedTransaction) Commit() kv.Future[struct{}] {
	future := tx.Transaction.Commit()
	if _, err := future.Get(); kv.MaybeCommitted(err) && tx.watched.unknown != nil {
		tx.watched.unknown()
	}
	return future
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
				list = append(list, []faultkv.Fault{first, second, third}, []faultkv.Fault{faultkv.Conflict, first, second, third})
			}
		}
	}
	return list
}

// onScripts runs a test once for each script, with the items 0 to 4 in queue "a", and "f0" to
// "f4" in FIFO queue "a". ready starts the script.
func onScripts(t *testing.T, run func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func())) {
	for _, script := range scripts() {
		t.Run(fmt.Sprint(script), func(t *testing.T) {
			t.Parallel() // they wait more than they work
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

// If an attempt of unknown outcome did not commit, another client may take the item that it
// popped. Then the retry pops the next one.
func TestUnknownPopLosesToAnother(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		other := fdbpq.NewBatcher(f.db, f.Keyspace)
		ready()
		got := map[string]int{}
		for i := range 5 {
			b := f.batcher
			if i%2 == 1 {
				b = other
			}
			ops := []fdbpq.Op{op(opPopMin, q)}
			results, err := b.Apply(f.ctx, ops)
			if err != nil {
				f.Fatal(err)
			}
			got[summary(ops, results)[0]]++
		}
		f.calm()
		wantEqual(f.T, "popped", got, map[string]int{"0": 1, "1": 1, "2": 1, "3": 1, "4": 1})
		wantEqual(f.T, "left", len(f.values(q.PopMin)), 0)
	})
}
