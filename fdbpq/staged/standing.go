package staged

import (
	"sync"
	"time"
)

// course is how a pop begins.
type course int

const (
	popDirectly course = iota // take an item, past the line if it may skip that
	serveLine                 // serve all requests in line, then itself
	standInLine               // register a request
)

// role is what a Popper has learned from its pops.
type role int

const (
	newcomer role = iota // nothing yet
	leader               // its last pop took its item itself, or served the line
	follower             // it lost, and another Popper served it
)

const (
	// maxSkipped is the longest line that a leader skips. Beyond that it costs more than it gains.
	maxSkipped = 32
	// skipsPerRequest is how many pops skip a line, on average, for each request in it. So about
	// two items of three go to pops that take a single transaction.
	skipsPerRequest = 2
)

// standing decides how the pops of a Popper begin.
type standing struct {
	random func(n int) int // rand.IntN

	mu        sync.Mutex
	role      role
	line      int           // how many requests were in line when a leader or newcomer last looked, at most maxSkipped+1
	leading   bool          // a pop of this Popper is under way that does not stand in line
	usualWait time.Duration // how long answers have taken lately
}

// chooseCourse decides about the next pop. Two pops of one Popper would conflict if both tried to
// take an item.
func (s *standing) chooseCourse() course {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading || s.role == follower {
		return standInLine
	}

	s.leading = true
	if s.role == leader && (s.line > maxSkipped || s.line > 0 && s.random(skipsPerRequest*s.line+1) == 0) {
		s.line = 0
		return serveLine
	}
	return popDirectly
}

// maySkip records how many requests are in line, and reports whether a pop may skip them.
func (s *standing) maySkip(line int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line
	return line == 0 || s.role == leader
}

// ledTo records how the attempt ended that a pop made without standing in line.
func (s *standing) ledTo(answer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.role = false, follower
	if answer {
		s.role = leader
	}
}

// answered records how long a pop waited in line, and whether it has served the line itself.
func (s *standing) answered(wait time.Duration, served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usualWait = (s.usualWait + wait) / 2
	if served {
		s.role, s.line = leader, 0
	}
}

// expectedWait is about how long the next answer will take.
func (s *standing) expectedWait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(2*minPoll, s.usualWait), maxPoll)
}
