package dispatch

import (
	"container/heap"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
)

// timers is the clock of a lane and its alarms: for what happens at a certain time rather than on
// request. runTimers, one goroutine with one timer, ends waiters, sends heartbeats and wakes lines.
// It sleeps while there is nothing to do.
type timers struct {
	epoch    time.Time
	woken    chan struct{}
	storeNow func() time.Time // the clock by which items fall due

	// The lane's lock guards these.
	lead time.Duration // of that clock over the monotonic one, as alarms take it to be
	alarms
}

// now returns the time since the timers were made.
func (s *timers) now() time.Duration { return time.Since(s.epoch) }

// at converts a time to one since the timers were made.
func (s *timers) at(t time.Time) time.Duration { return s.now() + time.Until(t) }

// since is at for a time that time.Now has returned, which has a monotonic reading.
func (s *timers) since(t time.Time) time.Duration { return t.Sub(s.epoch) }

// due is at for a time by the clock by which items fall due.
func (s *timers) due(t time.Time) time.Duration { return s.now() + t.Sub(s.storeNow()) }

// wake makes runTimers look for something to do.
func (s *timers) wake() { signal.To(s.woken) }

// set sets an alarm, or sets it to another time.
func (s *timers) set(a *alarm, at time.Duration) {
	s.alarms.set(a, at)
	if a.index == 1 {
		s.wake()
	}
}

// alarm is a time at which something happens.
type alarm struct {
	at    time.Duration // since the epoch of the timers or, for a task, the Unix epoch
	index int           // in alarms, from 1; 0 if it is not set

	// of is what to look at: a *waiter, *line or *lane for runTimers, a *task for the Sweeper. nil
	// stands for requests that nothing else may answer in time.
	of any
}

func (a *alarm) isSet() bool { return a.index > 0 }

// alarms is a heap of the alarms that are set, the first to go off in front.
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

const (
	// watchEvery is how often runTimers compares the clocks while a request waits.
	watchEvery = time.Second
	// watchTolerance is how far the clocks may drift apart before alarms are set again.
	watchTolerance = 50 * time.Millisecond
)

// clocksParted reports whether the clocks have drifted apart since the last call that returned
// true: because the one by which items fall due was set, or went on while this process did not, as
// after a virtual machine was resumed. Alarms use the monotonic clock, so they are wrong then.
func (s *timers) clocksParted() bool {
	lead := s.storeNow().Round(0).Sub(s.epoch.Round(0)) - s.now()
	if (lead - s.lead).Abs() < watchTolerance {
		return false
	}
	s.lead = lead
	return true
}
