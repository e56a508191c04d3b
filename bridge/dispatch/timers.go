package dispatch

import (
	"container/heap"
	"time"
)

// timers does what a lane has to do at a certain time rather than on request: it ends waiters,
// sends heartbeats and has lines looked at. It has one goroutine and one timer, and neither
// does anything while there is nothing to do.
type timers struct {
	epoch    time.Time
	woken    chan struct{}
	storeNow func() time.Time // the clock by which items fall due

	alarms // guarded by the lane's lock
}

func newTimers(storeNow func() time.Time) timers {
	return timers{epoch: time.Now(), woken: make(chan struct{}, 1), storeNow: storeNow}
}

// now returns the time since the timers were made.
func (s *timers) now() time.Duration { return time.Since(s.epoch) }

// at returns the time since the timers were made for a time.
func (s *timers) at(t time.Time) time.Duration { return s.now() + time.Until(t) }

// since returns the time from when the timers were made to a time that time.Now returned.
func (s *timers) since(t time.Time) time.Duration { return t.Sub(s.epoch) }

// due is at for a time from the store, which is by the clock by which items fall due.
func (s *timers) due(t time.Time) time.Duration { return s.now() + t.Sub(s.storeNow()) }

// wake makes runTimers look for something to do.
func (s *timers) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// set sets an alarm, or sets it to another time.
func (s *timers) set(a *alarm, at time.Duration) {
	s.alarms.set(a, at)
	if a.index == 1 {
		s.wake()
	}
}

// alarm is a time at which to look at something: runTimers at a waiter, a line, or requests that
// nothing else may answer in time, and the Sweeper at a queue.
type alarm struct {
	at    time.Duration // since the epoch of the timers, or the Unix epoch
	index int           // in alarms, from 1; 0 if it is not set
	of    any           // *waiter, *line, *lane, *task; nil for what is in flight: see findWorkLocked, Sweeper
}

func (a *alarm) isSet() bool { return a.index > 0 }

// alarms is a heap of those that are set, the first to go off in front.
type alarms []*alarm

// set sets an alarm, or sets it to another time.
func (s *alarms) set(a *alarm, at time.Duration) {
	a.at = at
	if a.isSet() {
		heap.Fix(s, a.index-1)
	} else {
		heap.Push(s, a)
	}
}

// clear clears an alarm, if it is set.
func (s *alarms) clear(a *alarm) {
	if a.isSet() {
		heap.Remove(s, a.index-1)
	}
}

// Len implements heap.Interface.
func (s alarms) Len() int { return len(s) }

// Less implements heap.Interface.
func (s alarms) Less(i, j int) bool { return s[i].at < s[j].at }

// Swap implements heap.Interface.
func (s alarms) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (s *alarms) Push(a any) {
	*s = append(*s, a.(*alarm))
	(*s)[len(*s)-1].index = len(*s)
}

// Pop implements heap.Interface.
func (s *alarms) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	a.index = 0
	return a
}

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
