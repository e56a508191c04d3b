package fdbpq_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

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

// wantFIFO checks the order of items of one priority: if the push of one ended before that of
// the other began, and both are in the queue, the earlier one comes out first.
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
			if a.Input.(fdbpq.Op).Kind != fdbpq.OpPush || b.Input.(fdbpq.Op).Kind != fdbpq.OpPush || a.Return >= b.Call {
				continue
			}
			first, second := a.Output.(fdbpq.Result).Item.ID, b.Output.(fdbpq.Result).Item.ID
			at, gone := popped[first]
			if first.Priority == second.Priority && compareIDs(first, second) > 0 && (!gone || at > b.Return) {
				t.Errorf("%v was pushed before %v and comes after it", first, second)
			}
		}
	}
}

// Under any interleaving and any faults, some order of all operations, each at a moment
// within its batch, explains every result.
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
						ClientId: w.number, Input: ops[i], Output: results[i], Call: int64(begun), Return: int64(ended),
					})
				}
				mu.Unlock()
			}
		})
		f.calm()
		wantFIFO(t, history)
		switch porcupine.CheckOperationsTimeout(sequentialQueue, history, 2*time.Second) {
		case porcupine.Illegal:
			t.Fatalf("round %d: no order of the %d operations explains their results", round, len(history))
		case porcupine.Unknown:
			t.Logf("round %d: not decided", round)
		}
	}
}
