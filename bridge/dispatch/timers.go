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

	alarms alarms // guarded by the lane's lock
}

func newTimers() timers {
	return timers{epoch: time.Now(), woken: make(chan struct{}, 1), storeNow: time.Now}
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
	a.at = at
	if a.isSet() {
		heap.Fix(&s.alarms, a.index-1)
	} else {
		heap.Push(&s.alarms, a)
	}
	if a.index == 1 {
		s.wake()
	}
}

// clear clears an alarm, if it is set.
func (s *timers) clear(a *alarm) {
	if a.isSet() {
		heap.Remove(&s.alarms, a.index-1)
	}
}

// alarm is a time at which runTimers looks at a waiter or a line, or at what is in flight.
type alarm struct {
	at    time.Duration // since the epoch of the timers
	index int           // in alarms, from 1; 0 if it is not set
	of    any           // *waiter or *line; nil for what is in flight
}

func (a *alarm) isSet() bool { return a.index > 0 }

// alarms is a heap of those that are set, the first to go off in front.
type alarms []*alarm

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
