// Package staged pops from queues that many processes pop from at the same time. It implements the
// published recipe's extension for high contention.
//
//	popper.go   Popper, and how its pops begin
//	pop.go      a pop: its first attempt, its wait in line, its withdrawal
//	serve.go    the answers to all requests in line, in one transaction
//	request.go  what a pop knows of its request; deadlines and limits
package staged

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Popper pops from a queue that many processes pop from at the same time. Plain pops from one queue
// conflict, and most of their work is wasted. A pop of a Popper can register a request for an item
// from its end of the queue, and another pop then serves all requests in line in one transaction.
//
// While conflicts are rare, pops need no line. A Popper leads as long as its pops succeed at the
// first attempt: each takes its item itself, in a single transaction, as a plain pop does. If an
// attempt loses to a conflict, or a new Popper finds a line, the Popper follows: its pops register
// at once. It leads again when one of them has served the line. So usually one Popper leads, the
// others follow, and nothing conflicts.
//
// A leader that saw n requests in line, at most 32, skips them with 2n pops of 2n+1. With the other
// one it serves the line, before it takes its own item. So among few processes two pops of three
// take a single transaction. Among many, nearly all stand in line, which gives the highest rate. A
// request is skipped by more than 30n+15 pops once in a million times.
//
// A pop in line checks for its answer, an item or "empty", until there is one. It serves the line
// itself if its request is the first and no other Popper has taken an item between two checks. It
// waits for a leader, or for the owner of the first request, for about a second at most.
//
// A process that dies strands nothing. Requests expire after 10 seconds. An item that is not
// collected within 30 seconds returns to its old place with the next pop of any process. These
// deadlines compare clocks of different machines, which must agree to a few seconds.
//
// Order is best effort among items in flight. The pops that one transaction serves get the first
// items of the queue, but one may return the second item before another has collected the first.
//
// A Popper that serves the line ignores Settings.MaxLeasedPerGroup, Rate, RatePerGroup and
// PausedGroups. Set none of them for a queue that has Poppers.
//
// A Popper is safe for concurrent use.
type Popper struct {
	db       kv.Database
	q        fdbpq.Target
	l        *codec.Layout
	now      func() time.Time
	standing standing

	mu struct {
		sync.Mutex
		oldClaims []expiringKey // of finished pops; the next pop removes them
		unsettled []*request    // pops of unknown outcome
	}
}

// New returns a Popper for the queue q in db.
func New(db kv.Database, q fdbpq.Target) *Popper {
	p := &Popper{db: db, q: q, l: q.Layout(), now: time.Now}
	p.standing.random = rand.IntN
	return p
}

// SetNow gives the Popper another clock than time.Now. Call it before the first pop.
func (p *Popper) SetNow(now func() time.Time) { p.now = now }

// once runs a step of a pop in a transaction, without retries. The step returns nil if the pop has
// no result yet. With an error, once returns no result.
func (p *Popper) once(
	ctx context.Context, step func(tx kv.Transaction) (*fdbpq.Result, error),
) (*fdbpq.Result, error) {
	tx, err := p.db.Begin(ctx, kv.BeginOptions{Shrinks: true})
	if err != nil {
		return nil, err
	}
	defer tx.Cancel()

	result, err := step(tx)
	if err != nil {
		return nil, err
	}

	if _, err = tx.Commit().Get(); err != nil {
		return nil, err
	}
	return result, nil
}

// course is how a pop begins.
type course int

const (
	popDirectly course = iota // take an item; past the line, if the pop may skip it
	serveLine                 // serve all requests in line, then itself
	standInLine               // register a request
)

// role is what a Popper has learned from its pops:
//
//	from      to        when
//	newcomer  leader    its first pop took its item itself
//	newcomer  follower  its first pop lost to a conflict, or found a line
//	leader    follower  a pop lost to a conflict
//	follower  leader    a pop in line has served the line
type role int

const (
	newcomer role = iota
	leader
	follower
)

const (
	// maxSkipped is the longest line that a leader skips. Skipping a longer one costs more than it
	// gains.
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
	line      int           // requests that a leader or newcomer last saw, at most maxSkipped+1
	leading   bool          // a pop of this Popper is under way that is not in line
	usualWait time.Duration // how long answers have taken lately
}

// chooseCourse decides how the next pop begins.
func (s *standing) chooseCourse() course {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading || s.role == follower { // two pops that both take an item would conflict
		return standInLine
	}

	s.leading = true
	if s.role != leader || s.line == 0 ||
		s.line <= maxSkipped && s.random(skipsPerRequest*s.line+1) != 0 {
		return popDirectly
	}

	s.line = 0
	return serveLine
}

// maySkip records how many requests are in line, and reports whether a pop may skip them.
func (s *standing) maySkip(line int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = line
	return line == 0 || s.role == leader
}

// ledTo records whether a pop that did not stand in line got a result.
func (s *standing) ledTo(answer bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.role = false, follower
	if answer {
		s.role = leader
	}
}

// answered records how long a pop waited in line, and whether it served the line itself.
func (s *standing) answered(wait time.Duration, served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usualWait = (s.usualWait + wait) / 2
	if served {
		s.role, s.line = leader, 0
	}
}

// expectedWait returns about how long the next answer will take.
func (s *standing) expectedWait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(2*minPoll, s.usualWait), maxPoll)
}
