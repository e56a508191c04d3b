package dispatch

import (
	"sync"
	"testing"
)

// Each period is counted from one, and no two callers see the same count.
func TestRate(t *testing.T) {
	var r Rate
	for period := range uint32(3) {
		const callers, each = 4, 200_000
		var counts [callers][]uint32
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for range each {
					counts[caller] = append(counts[caller], r.Note(period))
				}
			})
		}
		all.Wait()
		seen := make([]int, callers*each+1)
		for _, own := range counts {
			for _, n := range own {
				seen[n]++
			}
		}
		for n, times := range seen[1:] {
			if times != 1 {
				t.Fatalf("period %d: %d callers saw the count %d, want one", period, times, n+1)
			}
		}
	}
}
