package dispatch

import "time"

// clockWatch notices that the clock by which items fall due was set, or has gone on while this
// process did not, as when a virtual machine is resumed. Timers go by the monotonic clock, so what
// they were set for is then wrong. A clockWatch is not safe for concurrent use.
type clockWatch struct {
	now   func() time.Time
	epoch time.Time
	ahead time.Duration // of the monotonic clock, when it was looked at last
}

const (
	// watchEvery is how often somebody who waits for the clock looks at it.
	watchEvery = time.Second
	// watchTolerance is how far the clocks may part before timers are set again.
	watchTolerance = 50 * time.Millisecond
)

func newClockWatch(now func() time.Time) *clockWatch {
	c := &clockWatch{now: now, epoch: time.Now()}
	c.ahead = c.lead()
	return c
}

// lead returns how far the clock is ahead of the monotonic one.
func (c *clockWatch) lead() time.Duration {
	return c.now().Round(0).Sub(c.epoch.Round(0)) - time.Since(c.epoch)
}

// parted reports whether the clocks have parted since the last call that returned true.
func (c *clockWatch) parted() bool {
	lead := c.lead()
	if moved := lead - c.ahead; -watchTolerance < moved && moved < watchTolerance {
		return false
	}
	c.ahead = lead
	return true
}
