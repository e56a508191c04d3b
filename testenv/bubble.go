package testenv

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
)

// bubbles has the testing.TB of each Bubble.
var bubbles sync.Map

// bubbleTime is when the clocks of bubbles begin: the ids of items need one after 2020.
var bubbleTime = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// Bubble runs a test in a bubble of testing/synctest. Its clock stands still while anybody has
// something to do, so nothing times out on a slow machine, and no wait takes long. New makes systems
// in it that have no sockets, and bridges without an HTTP server.
//
// Nobody in it may wait for something else than time, a channel and the like, such as a mutex, while
// others sleep: that would never end.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	ats.Register() // the clock of JetStream, which all servers of the process share, is outside
	defer func() {
		ats.Unregister()
		// The NATS client keeps timers in a sync.Pool. Others must not get those of this bubble: two
		// collections empty it.
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, true)
		time.Sleep(time.Until(bubbleTime))
		t.Cleanup(func() {
			bubbles.Delete(t)
			time.Sleep(time.Minute) // what ends by itself, such as a pause, has to end in the bubble
		})
		test(t)
	})
}

func isBubble(t testing.TB) bool {
	_, found := bubbles.Load(t)
	return found
}
