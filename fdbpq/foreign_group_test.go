package fdbpq_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A group whose items were taken by a program that does not know groups, and left their keys behind, does not
// wait until the others have had as many turns. Items of it that are there are still served in order.
func TestGroupTakenByAnotherProgram(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.pushGroup(q, "a", 50, 1)
		write(f, func(tx kv.Transaction) { tx.ClearRange(itemRange(f.priority, "q")) })
		f.corrupt = true // counters have the items that are gone

		f.pushGroup(q, "b", 4, 1)
		f.apply(inGroup(opPush(q, 1, "a1"), "a"), inGroup(opPush(q, 1, "a2"), "a"))
		f.apply(inGroup(opPush(q, 1, "a3"), "a"))
		f.pushGroup(q, "b", 20, 1)
		got := f.popGroups(q, 20)
		place := map[string]int{}
		for i, value := range got {
			place[value] = i + 1
		}
		if place["a1"] == 0 || place["a1"] > place["a2"] || place["a2"] > place["a3"] {
			t.Errorf("popped %v", got)
		}
	})
}

// An earlier version ends leases and leaves their keys, so a group seems to be at its limit. A purge of all
// items removes what is left.
func TestPurgeRemovesWhatOthersLeft(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
		f.pushGroup(q, "a", 3, 1)
		leased := f.apply(leaseOf(q, fdbpq.Front))[0]
		wantError(t, leased.Err, nil)
		write(f, func(tx kv.Transaction) { tx.Clear(fdbpq.HeldKey(q, &leased.Item.ID)) })
		wantError(t, f.apply(leaseOf(q, fdbpq.Front))[0].Err, fdbpq.ErrGroupLimits)

		wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})[0].Err, nil)
		f.pushGroup(q, "a", 1, 1)
		r := f.apply(leaseOf(q, fdbpq.Front))[0]
		wantError(t, r.Err, nil)
		f.corrupt = true // the time index has the lease that is gone
	})
}
