package codec

import (
	"math"
	"testing"
)

// Fences grow from any fence, and stay within the stored integers. An item's first 10,000 have 48
// random bits each.
func TestFencesGrow(t *testing.T) {
	fence := int64(0)
	for n := int64(1); n <= 10_000; n++ {
		fence = NextFence(fence)
		if fence>>48 != n {
			t.Fatalf("fence %d is %#x, which counts %d", n, fence, fence>>48)
		}
	}

	for room := range 63 {
		for _, from := range []int64{1 << room, math.MaxInt64 - 1<<room} {
			for range 100 {
				if next := NextFence(from); next <= from {
					t.Fatalf("%#x follows on %#x", next, from)
				}
			}
		}
	}
}

// No two leases have the same fence, of one item or of two.
func TestFencesAreRandom(t *testing.T) {
	seen := map[int64]bool{}
	for range 1000 {
		seen[NextFence(0)] = true
	}
	if len(seen) < 999 {
		t.Errorf("%d of 1,000 first fences are different", len(seen))
	}
}
