package bridge_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
)

// The clock of a bridge is stepped forward while pops wait: they get what is due by the clock at once, and
// not when the monotonic clock has come as far.
func TestWaitingWhileTheClockIsStepped(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		clock := &steppedClock{}
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})
		push(t, e, "pq.jobs.push", nil, "a")
		got(t, ask(t, e.Conn, "pq.jobs.pop.min", `{"ack_wait":"1h"}`), "a")
		waiting := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		clock.step(time.Hour)
		got(t, waiting, "a")
	})
}
