package peers

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A bridge that is too far behind with reading to hear even itself does not consider
// its peers gone.
func TestRouterWaitsToHearItself(t *testing.T) {
	r := newTest(t).Router
	r.enter(phaseHere)
	r.p.config.Online = func() bool { return true }
	hear := func(id string) { r.hearHeartbeat(&nats.Msg{Data: []byte(string(phaseHere) + " " + id)}) }
	look := func(want int, when string) {
		t.Helper()
		if n := r.Count(); n != want {
			t.Errorf("%s: %d bridges, want %d", when, n, want)
		}
	}
	hear("other")
	look(2, "at first")
	for range 10 * peerLife {
		r.agePeers()
	}
	look(2, "after a time without hearing anything")
	for range peerLife + 1 {
		hear(r.p.config.Self.ID)
		r.agePeers()
	}
	look(1, "when only the other is not heard")
}
