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
// something to do, so nothing times out on a slow machine, and no wait takes long. New makes
// systems in it that have no sockets, and bridges without an HTTP server.
//
// While others sleep, nobody in the bubble may wait for anything but time, a channel and the like.
// Waiting for a mutex would never end.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	ats.Register() // The clock of JetStream, which all servers of the process share, is outside.
	defer func() {
		ats.Unregister()
		// The NATS client keeps timers in a sync.Pool, which two collections empty. Others must not
		// get the timers of this bubble.
		runtime.GC()
		runtime.GC()
	}()
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, true)
		time.Sleep(time.Until(bubbleTime))
		t.Cleanup(func() {
			bubbles.Delete(t)
			time.Sleep(time.Minute) // What ends by itself, such as a pause, has to end here.
		})
		test(t)
	})
}

func isBubble(t testing.TB) bool {
	_, found := bubbles.Load(t)
	return found
}
