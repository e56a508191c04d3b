package bridge

import (
	"fmt"
	"testing"
)

// A bridge that is alone does not remember which queues are used.
func TestDirectForgetsWhenAlone(t *testing.T) {
	d := newTestBridge(t).router.direct
	for i := range 100 * sampling {
		d.popped(fmt.Sprintf("pq.jobs-%d.pop.min", i))
	}
	if len(d.mu.busy) == 0 {
		t.Error("nothing was counted")
	}
	if err := d.look(0); err != nil {
		t.Error(err)
	}
	if n := len(d.mu.busy); n > 0 {
		t.Errorf("%d subjects are remembered", n)
	}
}

// What is idle is forgotten, and nothing that is not busy is subscribed to.
func TestDirectForgetsWhatIsIdle(t *testing.T) {
	d := newTestBridge(t).router.direct
	for i := range 100 * sampling {
		d.popped(fmt.Sprintf("pq.jobs-%d.pop.min", i)) // at most one sample each
	}
	for range idleLooks + 1 {
		if err := d.look(directWeight); err != nil {
			t.Error(err)
		}
	}
	if n := len(d.mu.busy); n > 0 {
		t.Errorf("%d subjects are remembered", n)
	}
	if d.mu.trying {
		t.Error("a connection is made for nothing")
	}
}
