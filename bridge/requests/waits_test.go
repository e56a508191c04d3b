package requests

import (
	"fmt"
	"testing"
)

// A flood of cancels of nothing takes little memory.
func TestCancelsOfNothingAreForgotten(t *testing.T) {
	w := newWaits(newTestDispatcher(t))

	for i := range 10_000 {
		w.End(fmt.Sprint("priority jobs nothing-", i))
	}

	if n := len(w.mu.early); n > maxEarly {
		t.Errorf("%d cancels are remembered, want at most %d", n, maxEarly)
	}
}
