package fdbpq

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
	// MaxSkipped is the longest line that a leader skips. Beyond that it costs more than it gains.
	MaxSkipped = 32
	// skipsPerRequest is how many pops skip a line, on average, for each request in it. So about
	// two items of three go to pops that take a single transaction.
	skipsPerRequest = 2
)

// standing decides how the pops of a Popper begin.
type standing struct {
	role    role
	line    int  // how many requests were in line when a leader or newcomer last looked, at most MaxSkipped+1
	leading bool // a pop of this Popper is under way that does not stand in line
}

// chooseCourse decides about the next pop; random is like rand.IntN. Two pops of one Popper would conflict
// if both tried to take an item.
func (s *standing) chooseCourse(random func(n int) int) course {
	if s.leading || s.role == follower {
		return standInLine
	}
	s.leading = true
	if s.role == leader && (s.line > MaxSkipped || s.line > 0 && random(skipsPerRequest*s.line+1) == 0) {
		return serveLine
	}
	return popDirectly
}

// maySkip records how many requests are in line, and reports whether a pop may skip them.
func (s *standing) maySkip(line int) bool {
	s.line = line
	return line == 0 || s.role == leader
}

// ledTo records how the attempt ended that a pop made without standing in line.
func (s *standing) ledTo(answer bool) {
	s.leading = false
	s.role = follower
	if answer {
		s.role = leader
	}
}
