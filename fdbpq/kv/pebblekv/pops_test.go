package pebblekv

import (
	"cmp"
	"flag"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

var pops = flag.Int("pops", 0, "items that TestFirstAfterPops pops; 0 is some")

// A pop steps over as few dead keys after many pops as after few: the first item of a queue is
// found as fast. What a step takes does not depend on the pops.
func TestFirstAfterPops(t *testing.T) {
	const (
		priorities = 10
		batch      = 100        // items that a transaction pushes, and another one pops
		most       = 50 * batch // steps of a transaction that pops
		value      = 128        // bytes
		waiting    = 10 * batch // items behind all that are popped
	)
	want := cmp.Or(*pops, harness.Times(50_000, 2_000_000))
	db := openTestDir(t, t.TempDir(), Options{MinFreeSpace: -1})
	key := func(priority, n int) []byte { return fmt.Appendf(nil, "item/%02d/%012d", priority, n) }
	all := kv.Range{Begin: []byte("item/"), End: []byte("item0")}

	for n := 0; n < waiting; n += batch {
		tx := begin(t, db)
		for i := range batch {
			tx.Set(key(priorities, n+i), make([]byte, value))
		}
		mustCommit(t, tx)
	}

	worst, steps := 0, 0
	for popped := 0; popped < want; popped += batch {
		push := begin(t, db)
		for i := range batch {
			push.Set(key(i%priorities, popped+i), make([]byte, value))
		}
		pushed := push.Commit()

		pop := begin(t, db).(*transaction)
		pairs, err := pop.GetRange(all, kv.RangeOptions{Limit: batch}).Get()
		if err != nil || len(pairs) != batch {
			t.Fatalf("after %d pops: %d items, %v", popped, len(pairs), err)
		}
		stats := pop.storeIter.Stats()
		steps = stats.ForwardStepCount[pebble.InternalIterCall]
		if worst = max(worst, steps); steps > most {
			t.Fatalf("after %d pops, %d items took %d steps, want %d at most",
				popped, batch, steps, most)
		}
		for i := range pairs {
			pop.Clear(pairs[i].Key)
		}
		must(t, errOf(pushed.Get()))
		mustCommit(t, pop)
	}
	t.Logf("pops: %d; the last %d items took %d steps, %d at most", want, batch, steps, worst)
}
