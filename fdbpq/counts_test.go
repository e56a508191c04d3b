package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
)

// onlyWay returns a store that only its Database can change, and counts its reads.
func onlyWay(t *testing.T) (*fixture, *countkv.DB) {
	store := countkv.New(openPebble(t, vfs.NewMem()))
	return newFixture(t, store, fdbpq.RawValues), store
}

// Batches that push to a priority again do not read its last items again.
func TestKnownCounts(t *testing.T) {
	f, store := onlyWay(t)
	q := f.queue("a")
	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}
	push := func() int {
		store.Take()
		f.apply(opPush(q, 1, "x"), opPush(q, 2, "y"))
		return store.Take()[0].Reads
	}
	f.apply(opPush(q, 3, ""))
	first := push()
	wantEqual(t, "reads saved by the second", first-push(), 4)
	f.apply(pop)
	wantEqual(t, "reads saved after a pop", first-push(), 4)
	write(f, func(kv.Transaction) {})
	// Its settings, which the first knew, are one more read.
	wantEqual(t, "reads saved after a transaction of somebody else", first-push(), -1)
}

// What is pushed comes after everything else of its priority, whoever put that there, and how, between
// two batches of pushes.
func TestKnownCountsOrder(t *testing.T) {
	for name, between := range map[string]func(f *fixture, q *fdbpq.PriorityQueue, last fdbpq.Item){
		"restored": func(f *fixture, q *fdbpq.PriorityQueue, last fdbpq.Item) { f.apply(opRestore(q, last)) },
		"redriven": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.Item) {
			f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "redriven")}, 5)...)
			for range 5 {
				lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, End: fdbpq.Back})[0].Lease
				f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Token})
			}
			f.apply(opPush(q, 1, "known"))
			f.apply(fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: q.DeadLetters()})
		},
		"moved": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.Item) {
			for _, r := range f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 9, "moved")}, 5)...) {
				f.apply(fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: r.Item.ID, Priority: 1})
			}
		},
		"pushed by others": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.Item) {
			for i := range 3 {
				write(f, func(tx kv.Transaction) { must(q.Push(tx, 1, fdbpq.Message{Value: fmt.Appendf(nil, "other %d", i)})) })
			}
		},
		"pushed by another Batcher": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.Item) {
			must(fdbpq.NewBatcher(f.db, f.Keyspace).Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "1"), opPush(q, 1, "2"), opPush(q, 1, "3")}))
		},
		"dead letters": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.Item) {
			work := f.queue("work")
			f.configure(work, func(s *fdbpq.Settings) { s.DeadLetter = "a" })
			for i := range 3 {
				f.apply(opPush(work, 1, fmt.Sprint("dead ", i)))
				lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: work})[0].Lease
				f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: work, Token: lease.Token})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := onlyWay(t)
			q := f.queue("a")
			f.apply(opPush(q, 1, "first"))
			for i := range 5 {
				f.apply(opPush(q, 1, fmt.Sprint("popped ", i)))
			}
			popped := f.apply(slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpPop, Queue: q, End: fdbpq.Back}}, 5)...)
			write(f, func(kv.Transaction) {}) // so the next push reads that the first is the last
			f.apply(opPush(q, 1, "known"))
			between(f, q, popped[0].Item)
			f.apply(opPush(q, 1, "new"))
			f.wantLast(q, "new")
		})
	}
}

// wantLast pops everything, and checks what comes last.
func (f *fixture) wantLast(q *fdbpq.PriorityQueue, want string) {
	f.Helper()
	var order []string
	for {
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})[0]
		if r.Err != nil {
			break
		}
		order = append(order, fmt.Sprint(string(r.Item.Value), "@", r.Item.ID.Count))
	}
	last, _, _ := strings.Cut(order[len(order)-1], "@")
	wantEqual(f.T, fmt.Sprint("last of ", order), last, want)
}

// A batch that pushes, and also brings other items to that priority, has counted the pushes before these.
func TestKnownCountsOfOneBatch(t *testing.T) {
	for name, others := range map[string]func(f *fixture, q *fdbpq.PriorityQueue, popped []fdbpq.Result) []fdbpq.Op{
		"restored": func(_ *fixture, q *fdbpq.PriorityQueue, popped []fdbpq.Result) (ops []fdbpq.Op) {
			for _, r := range popped {
				ops = append(ops, opRestore(q, r.Item))
			}
			return ops
		},
		"moved": func(f *fixture, q *fdbpq.PriorityQueue, _ []fdbpq.Result) (ops []fdbpq.Op) {
			for _, r := range f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 9, "moved")}, 3)...) {
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: r.Item.ID, Priority: 1})
			}
			return ops
		},
		"redriven": func(f *fixture, q *fdbpq.PriorityQueue, _ []fdbpq.Result) []fdbpq.Op {
			f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "redriven")}, 3)...)
			for range 3 {
				lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease
				f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Token})
			}
			return []fdbpq.Op{{Kind: fdbpq.OpRedrive, Queue: q.DeadLetters()}}
		},
		"dead letters": func(f *fixture, q *fdbpq.PriorityQueue, _ []fdbpq.Result) (ops []fdbpq.Op) {
			work := f.queue("work")
			f.configure(work, func(s *fdbpq.Settings) { s.DeadLetter = "a" })
			f.apply(slices.Repeat([]fdbpq.Op{opPush(work, 1, "dead")}, 3)...)
			for range 3 {
				lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: work})[0].Lease
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: work, Token: lease.Token})
			}
			return ops
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := onlyWay(t)
			q := f.queue("a")
			f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "popped")}, 5)...)
			popped := f.apply(slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpPop, Queue: q}}, 5)...)
			ops := append(others(f, q, popped), opPush(q, 1, "beside them"))
			write(f, func(kv.Transaction) {}) // so that nothing is known
			for i, r := range f.apply(ops...) {
				wantError(t, r.Err, nil)
				if r.Err != nil {
					t.Fatal("operation", i)
				}
			}
			f.apply(opPush(q, 1, "new"))
			f.wantLast(q, "new")
		})
	}
}

// Items of staged pops that nobody collected come back with counts that nobody knows.
func TestKnownCountsAndStagedItems(t *testing.T) {
	f, _ := onlyWay(t)
	q, clock := f.queue("a"), newClock(time.Now())
	f.batcher.SetNow(clock.now)
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "staged")}, 5)...)
	f.leave(q, clock.now(), slices.Repeat([]fdbpq.End{fdbpq.Front}, 5)...)
	f.apply(opPush(q, 1, "between"))
	clock.advance(time.Hour)
	f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}) // brings them back
	f.apply(opPush(q, 1, "new"))
	clock.advance(time.Hour)
	f.wantLast(q, "new")
}
