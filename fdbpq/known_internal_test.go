package fdbpq

import (
	"testing"
	"time"
)

// The time index is by the wall clock. The monotonic one stands still while the machine sleeps.
func TestKnownDueByWallClock(t *testing.T) {
	f := &facts{quietUntil: forever}
	f.noteDue(time.Now().Add(time.Minute))
	if f.quietUntil != f.quietUntil.Round(0) {
		t.Errorf("%v has a reading of the monotonic clock", f.quietUntil)
	}
}
