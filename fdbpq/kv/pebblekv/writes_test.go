package pebblekv

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// The runs of random writes agree with the same writes sorted: on their order, the keys set, the
// newest write of a key, and whether a range was touched.
func TestRuns(t *testing.T) {
	rng := seeded(t)
	for range 300 {
		var w writes
		// Most with a long common start, some that differ only behind 8 bytes, some short.
		key := func() []byte {
			switch rng.IntN(10) {
			case 0:
				return []byte{byte(rng.IntN(4))}
			case 1:
				return fmt.Appendf(nil, "pq-queue-%d", rng.IntN(9))
			default:
				return fmt.Appendf(nil, "pq-queue-a-%d-the same for all-%d",
					rng.IntN(3), rng.IntN(60))
			}
		}

		for range 1 + rng.IntN(12) {
			added := len(w.list)
			for range rng.IntN(1 << rng.IntN(8)) {
				if rng.IntN(2) == 0 {
					w.set(key(), []byte{1})
				} else {
					w.clear(key())
				}
			}

			var want [][]byte
			for _, n := range sortedNumbers(&w, added) {
				if len(w.list[n].value) > 0 {
					want = append(want, w.list[n].key)
				}
			}
			if got := w.sortNew(); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("%d writes after %d: set keys %q, want %q",
					len(w.list)-added, added, got, want)
			}

			for range 20 {
				k, end := key(), key()
				var newest *write
				touched := false

				for i := range w.list {
					if bytes.Equal(w.list[i].key, k) {
						newest = &w.list[i]
					}
					touched = touched ||
						bytes.Compare(k, w.list[i].key) <= 0 &&
							bytes.Compare(w.list[i].key, end) < 0
				}
				if got := w.newest(k); got != newest {
					t.Fatalf("newest write of %q: %v, want %v", k, got, newest)
				}

				if r := (kv.Range{Begin: k, End: end}); !r.Empty() && w.touch(r) != touched {
					t.Fatalf("%q to %q touched: %v, want %v", k, end, !touched, touched)
				}
			}
		}

		for len(w.runs) > 1 {
			w.mergeLast()
		}
		if all := slices.Concat(w.runs...); !slices.Equal(all, sortedNumbers(&w, 0)) {
			t.Fatalf("merged: %v, want %v", all, sortedNumbers(&w, 0))
		}
	}
}

// sortedNumbers returns the numbers of the writes from one on, in order.
func sortedNumbers(w *writes, from int) (all []int32) {
	for i := from; i < len(w.list); i++ {
		all = append(all, int32(i))
	}

	slices.SortFunc(all, func(a, b int32) int {
		return cmp.Or(bytes.Compare(w.list[a].key, w.list[b].key), cmp.Compare(a, b))
	})
	return all
}
