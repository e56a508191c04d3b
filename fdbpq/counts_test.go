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

// Items of staged pops that nobody collected come back with counts that nobody knows.
func TestKnownCountsAndStagedItems(t *testing.T) {
	f, _ := onlyWay(t)
	q, clock := f.queue("a"), newClock(time.Now())
	f.batcher.SetNow(clock.now)
	p := fdbpq.NewPopper(f.db, q)
	p.SetNow(clock.now)
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "staged")}, 5)...)
	f.line(p, slices.Repeat([]fdbpq.End{fdbpq.Front}, 5)...)
	f.serve(p)
	f.apply(opPush(q, 1, "between"))
	clock.advance(time.Hour)
	f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}) // brings them back
	f.apply(opPush(q, 1, "new"))
	clock.advance(time.Hour)
	f.wantLast(q, "new")
}
