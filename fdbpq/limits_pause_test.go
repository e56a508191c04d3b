package fdbpq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

func paused(groups ...string) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.PausedGroups = groups }
}

// Pops and leases pass over a paused group, from either end. Its pushes are taken, and after the
// pause it has its old places.
func TestPausedGroup(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, many := range []int{1, 64, 150} { // a search begins after 64
			q := f.queue(fmt.Sprint("q", many))
			f.pushGroup(q, "a", many, 1)
			f.apply(opPush(q, 2, "none"), inGroup(opPush(q, 3, "b"), "b"),
				inGroup(opPush(q, 4, "last"), "a"))
			f.configure(q, paused("a", "unused"))
			f.apply(inGroup(opPush(q, 0, "first"), "a"), inGroup(opPush(q, 3, "c"), "c"),
				opPush(q, 3, "indexed"))

			info := f.apply(fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q})[0].Info
			wantEqual(t, "groups and those passed over",
				[2]int{info.GroupCount, info.GroupsAtLimit}, [2]int{3, 1})

			back := string(f.apply(op(opPopMax, q))[0].Item.Value)
			wantEqual(t, "popped from the back", back, "indexed")

			taken := f.apply(leaseOf(q, fdbpq.Front), leaseOf(q, fdbpq.Front), op(opPopMin, q),
				leaseOf(q, fdbpq.Front))
			var values []string

			for _, r := range taken[:3] {
				values = append(values, string(r.Item.Value))
			}
			wantList(t, "taken", values, "none", "b", "c")

			refused := taken[3].Err
			const text = "fdbpq: nothing may be served now: " +
				"the groups of the ready items are paused"
			if !errors.Is(refused, fdbpq.ErrEmpty) || !errors.Is(refused, fdbpq.ErrGroupLimits) ||
				refused.Error() != text {
				t.Error(refused)
			}

			f.configure(q, paused())
			wantEqual(t, "first", string(f.apply(op(opPopMin, q))[0].Item.Value), "first")
			wantEqual(t, "next", string(f.apply(op(opPopMin, q))[0].Item.Value), "a1")
			f.check()

			f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
		}
	})
}

// A paused group stays paused whatever its other limits allow, and its leases are extended,
// acknowledged and given back as usual.
func TestPausedGroupInUse(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.fifoQueue("q")
		f.pushGroup(q, "a", 3, 1)
		f.pushGroup(q, "b", 1, 1)
		leases := f.apply(leaseOf(q, fdbpq.Front), leaseOf(q, fdbpq.Front), leaseOf(q, fdbpq.Front))
		f.configure(q, func(s *fdbpq.Settings) {
			s.PausedGroups, s.MaxLeasedPerGroup, s.RatePerGroup = []string{"a"}, 9, "9/1s"
		})

		for i, kind := range []fdbpq.OpKind{fdbpq.OpExtend, fdbpq.OpAck, fdbpq.OpNak} {
			settle := fdbpq.Op{
				Kind:  kind,
				Queue: q,
				Token: leases[i].Lease.Token,
				Lease: time.Minute,
			}
			wantError(t, f.apply(settle)[0].Err, nil)
		}

		r := f.apply(leaseOf(q, fdbpq.Front))[0]
		const want = "fdbpq: nothing may be served now: the groups of the ready items " +
			"have max_leased_per_group 9 leased or have used up rate_per_group 9/1s or are paused"
		if fmt.Sprint(r.Err) != want {
			t.Errorf("leased %q (error %v)", r.Item.Value, r.Err)
		}
		f.check()
	})
}
