package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// hooked is a store that calls functions of a test, unless they are nil.
type hooked struct {
	kv.Database

	// begin runs before a transaction; an error prevents it.
	begin        func(kv.BeginOptions) error
	begun        func()                                   // before it reads
	beforeCommit func()                                   // after all its reads
	commit       func(kv.Transaction) kv.Future[struct{}] // instead of its commit
	unknown      func()                                   // after a commit of unknown outcome
}

func (h *hooked) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if h.begin != nil {
		if err := h.begin(o); err != nil {
			return nil, err
		}
	}

	tx, err := h.Database.Begin(ctx, o)
	if h.begun != nil {
		h.begun()
	}

	return hookedTransaction{tx, h}, err
}

type hookedTransaction struct {
	kv.Transaction
	hooked *hooked
}

func (tx hookedTransaction) Commit() kv.Future[struct{}] {
	h := tx.hooked
	if h.beforeCommit != nil {
		h.beforeCommit()
	}

	if h.commit != nil {
		return h.commit(tx.Transaction)
	}

	future := tx.Transaction.Commit()
	if h.unknown != nil {
		if _, err := future.Get(); kv.MaybeCommitted(err) {
			h.unknown()
		}
	}

	return future
}

// Each result of a batch is true at some moment between its start and its end, even if another
// client is faster.
func TestPeeksInBatchesAreLinearizable(t *testing.T) {
	f := onMem(t)
	q := f.queue("a")
	first, last := op(opPeekMin, q), op(opPeekMax, q)
	popMin, popMax := op(opPopMin, q), op(opPopMax, q)
	length := op(opLen, q)
	push := func(p int64, v string) fdbpq.Op { return opPush(q, p, v) }
	empty := fdbpq.ErrEmpty.Error()
	ops := func(list ...fdbpq.Op) []fdbpq.Op { return list }
	list := func(values ...string) string { return fmt.Sprintf("%q", values) }

	for _, c := range []struct {
		name    string
		before  []fdbpq.Op // what is there
		batch   []fdbpq.Op
		rival   []fdbpq.Op // what another client does before the batch commits
		allowed []string   // the results that some order of all operations explains
	}{
		{
			name:    "own push, a better one comes first",
			batch:   ops(push(5, "own"), first),
			rival:   ops(push(1, "r"), last),
			allowed: []string{list("", "r", "", "r"), list("", "own", "", "own")},
		},
		{
			name:   "own push, a better one was there and is popped",
			before: ops(push(1, "x")),
			batch:  ops(push(5, "own"), first),
			rival:  ops(popMin, first),
			allowed: []string{
				list("", "x", "x", empty),
				list("", "x", "x", "own"),
				list("", "own", "x", empty),
				list("", "own", "x", "own"),
			},
		},
		{
			name:   "both ends, one own and one not",
			before: ops(push(3, "x")),
			batch:  ops(push(5, "own"), first, last),
			rival:  ops(push(9, "r"), popMin),
			allowed: []string{
				list("", "x", "own", "", "x"),
				list("", "own", "r", "", "x"),
				list("", "x", "r", "", "x"),
				list("", "own", "own", "", "x"),
			},
		},
		{
			name:    "pop and peek, a better one comes",
			before:  ops(push(3, "x"), push(4, "y")),
			batch:   ops(popMin, first),
			rival:   ops(push(1, "r")),
			allowed: []string{list("x", "y", ""), list("r", "x", ""), list("x", "r", "")},
		},
		{
			name:    "pop and peek, the next is popped",
			before:  ops(push(3, "x"), push(4, "y")),
			batch:   ops(popMin, first),
			rival:   ops(popMax, first),
			allowed: []string{list("x", empty, "y", "x")},
		},
		{
			name:   "pops, one comes between",
			before: ops(push(3, "x"), push(9, "y")),
			batch:  ops(popMin, popMin),
			rival:  ops(push(5, "r"), first),
			allowed: []string{
				list("x", "r", "", "x"),
				list("x", "r", "", "r"),
				list("x", "y", "", "r"),
			},
		},
		{
			name:    "pop of nothing and peek",
			batch:   ops(popMin, first),
			rival:   ops(push(1, "r")),
			allowed: []string{list(empty, empty, ""), list("r", empty, ""), list(empty, "r", "")},
		},
		{
			name:  "len and own push",
			batch: ops(length, push(1, "own")),
			rival: ops(push(2, "r"), length),
			allowed: []string{
				list("0", "", "", "1"),
				list("1", "", "", "1"),
				list("1", "", "", "2"),
				list("2", "", "", "2"),
				list("0", "", "", "2"),
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: f.ctx, db: f.db, batcher: f.batcher}
			write(f, q.Clear)

			if len(c.before) > 0 {
				f.apply(c.before...)
			}

			var theirs []fdbpq.Result
			b := fdbpq.NewBatcher(&hooked{Database: f.db, beforeCommit: func() {
				for len(theirs) < len(c.rival) {
					theirs = append(theirs, f.apply(c.rival[len(theirs)])...)
				}
			}}, must(fdbpq.NewKeyspace("unused", "unused-too", fdbpq.RawValues)))

			results := must(b.Apply(f.ctx, c.batch))
			got := list(append(summary(c.batch, results), summary(c.rival, theirs)...)...)

			for _, want := range c.allowed {
				if got == want {
					return
				}
			}
			t.Errorf("results are %s, of which no order of the operations can be the reason", got)
		})
	}
}

// sequentialQueue models a queue with one operation at a time: a sorted set of ids. It does
// not say which id a push gets: see wantFIFO.
var sequentialQueue = porcupine.Model{
	Init: func() any { return []fdbpq.ID(nil) },
	Step: func(state, input, output any) (bool, any) {
		return stepQueue(state.([]fdbpq.ID), input.(fdbpq.Op), output.(fdbpq.Result))
	},
	Equal: func(a, b any) bool { return slices.Equal(a.([]fdbpq.ID), b.([]fdbpq.ID)) },
}

func stepQueue(items []fdbpq.ID, o fdbpq.Op, r fdbpq.Result) (bool, []fdbpq.ID) {
	switch o.Kind {
	case fdbpq.OpPush:
		at, there := slices.BinarySearchFunc(items, r.Item.ID, compareIDs)
		return !there, slices.Insert(slices.Clone(items), at, r.Item.ID)
	case fdbpq.OpLen:
		return r.Len == int64(len(items)), items
	}

	if len(items) == 0 || r.Err != nil {
		return len(items) == 0 && errors.Is(r.Err, fdbpq.ErrEmpty), items
	}

	first, last := items[0], len(items)-1
	switch {
	case o.Kind == fdbpq.OpPeek && o.End == fdbpq.Front:
		return r.Item.ID == first, items
	case o.Kind == fdbpq.OpPeek:
		return r.Item.ID == items[last], items
	case o.End == fdbpq.Front:
		return r.Item.ID == first, items[1:]
	}

	return r.Item.ID == items[last], items[:last]
}

// wantFIFO checks the order of items of one priority: if one push ended before another began, and
// both items are in the queue, the earlier one comes out first.
func wantFIFO(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	popped := map[fdbpq.ID]int64{} // when the pop began
	for _, o := range history {
		if o.Input.(fdbpq.Op).Kind == fdbpq.OpPop {
			popped[o.Output.(fdbpq.Result).Item.ID] = o.Call
		}
	}

	for _, a := range history {
		for _, b := range history {
			if a.Input.(fdbpq.Op).Kind != fdbpq.OpPush || b.Input.(fdbpq.Op).Kind != fdbpq.OpPush ||
				a.Return >= b.Call {
				continue
			}

			first, second := a.Output.(fdbpq.Result).Item.ID, b.Output.(fdbpq.Result).Item.ID
			at, gone := popped[first]
			if first.Priority == second.Priority && compareIDs(first, second) > 0 &&
				(!gone || at > b.Return) {
				t.Errorf("%v was pushed before %v and comes after it", first, second)
			}
		}
	}
}

// Under any interleaving and any faults, some order of all operations, each at a moment within its
// batch, explains every result.
func TestLinearizable(t *testing.T) {
	_, seed := newRandom(t)
	for round := range uint64(12) {
		f := newUnsure(t, faultkv.Options{Seed: seed + round, Rates: rates})
		q := f.queue("a")
		var mu sync.Mutex
		var history []porcupine.Operation
		start := time.Now()

		f.run(seed+round, 4, func(w *worker) {
			for range 25 {
				var ops []fdbpq.Op
				for range 1 + w.random.IntN(3) {
					ops = append(ops, w.nextOp(q, nil, opNoItem, opNoItem, opPopMin, opPopMax,
						opPeekMin, opPeekMax, opLen))
				}

				begun := time.Since(start)
				results, err := w.batcher.Apply(f.ctx, ops)
				ended := time.Since(start)
				if err != nil {
					f.Errorf("Apply: %v", err)
					return
				}

				mu.Lock()
				for i := range ops {
					history = append(history, porcupine.Operation{
						ClientId: w.number,
						Input:    ops[i],
						Output:   results[i],
						Call:     int64(begun),
						Return:   int64(ended),
					})
				}

				mu.Unlock()
			}
		})

		f.calm()
		wantFIFO(t, history)

		switch porcupine.CheckOperationsTimeout(sequentialQueue, history, 20*time.Second) {
		case porcupine.Illegal:
			t.Fatalf("round %d: no order of the %d operations explains their results",
				round, len(history))
		case porcupine.Unknown:
			t.Logf("round %d: not decided", round)
		}
	}
}
