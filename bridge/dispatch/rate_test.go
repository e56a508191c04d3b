package dispatch

import (
	"sync"
	"testing"
)

// Each period is counted from one, and no two callers see the same count.
func TestRate(t *testing.T) {
	var r Rate
	for period := range uint32(3) {
		const callers, each = 4, 1000
		var mu sync.Mutex
		var all sync.WaitGroup
		seen := map[uint32]int{}
		for range callers {
			all.Go(func() {
				for range each {
					n := r.Note(period)
					mu.Lock()
					seen[n]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for n := uint32(1); n <= callers*each; n++ {
			if seen[n] != 1 {
				t.Fatalf("period %d: %d callers saw the count %d, want one", period, seen[n], n)
			}
		}
	}
}
