package state

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// The time index is by the wall clock. The monotonic one stands still while the machine sleeps.
func TestKnownDueByWallClock(t *testing.T) {
	f := &facts{quietUntil: codec.Forever}
	f.noteDue(time.Now().Add(time.Minute))
	if f.quietUntil != f.quietUntil.Round(0) {
		t.Errorf("%v has a reading of the monotonic clock", f.quietUntil)
	}
}
