package dispatch

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// line is the requests that wait for items of one queue; states.go has its rules. The lane's lock
// guards it, except as stated.
type line struct {
	links[line] // in lane.mu.ready

	queue   *Queue
	waiters linkedList[waiter, *waiter]
	ending  int // waiters that end when nothing is found, see waiter.endsWhenEmpty
	leases  int // waiters that want leases
	blocked int // waiters in no batch whose Credits are used up
	state   lineState

	budget      int  // pops that the next look should have
	guess       bool // there may be more items
	speculative bool // WakeAll gave the budget, and there is probably nothing

	reserved int // pops in the batch that is being made
	inFlight int // batches in flight with operations of the line
	attempt  attempt
	alarm    alarm // when to look again

	// Numbers by lane.mu.clock, 0 if there was none: the last event, the last look that found
	// nothing, and the last that met max_leased.
	event, emptied, noLease int64

	// failed is the error of the last look, nil if it succeeded. nothing is why the last look that
	// found nothing did so, nil if none has: fdbpq.ErrEmpty or an error that wraps it.
	failed, nothing error
}

// expect has the next look make pops, or more: there may be an unknown number of items.
func (ln *line) expect(pops int) { ln.budget, ln.guess = max(ln.budget, pops), true }

// servable reports whether a batch can have pops of the line: it has waiters that do not want
// leases, or leases are possible and some waiter has credits.
func (ln *line) servable() bool {
	return ln.waiters.n > ln.leases || !ln.limitInForce() && ln.leases > ln.blocked
}

// limitInForce reports whether no lease is possible: one has met max_leased, and there was no event
// since.
func (ln *line) limitInForce() bool { return ln.noLease > ln.event }

// attempt is what the look in flight has found out for a line. lane.calling guards it.
type attempt struct {
	pops   int
	unused int       // what the look left of the budget
	guess  bool      // as in line
	failed error     // of a batch
	empty  error     // why a pop found nothing; nil if none did
	full   error     // why a lease found that too many items are leased
	stuck  error     // why a pop failed otherwise
	due    time.Time // when the next item falls due; zero if none does
}

// noteResult records the result of a pop that found nothing.
func (f *attempt) noteResult(r *fdbpq.Result) {
	switch {
	case errors.Is(r.Err, fdbpq.ErrEmpty):
		f.empty = r.Err
		f.due = r.NextDue // the last pop's is the most recent
	case errors.Is(r.Err, fdbpq.ErrMaxLeased):
		f.full, f.due = r.Err, r.NextDue
	default:
		f.stuck = r.Err
	}
}

// linkedList is a doubly linked list through the links of its elements, so it allocates nothing.
type linkedList[T any, P linked[T]] struct {
	first, last *T
	n           int
}

// linked is a pointer to something that embeds links.
type linked[T any] interface {
	*T
	place() *links[T]
}

type links[T any] struct{ prev, next *T }

func (e *links[T]) place() *links[T] { return e }

func (s *linkedList[T, P]) push(e *T) {
	at := P(e).place()
	at.prev, at.next = s.last, nil
	if s.last == nil {
		s.first = e
	} else {
		P(s.last).place().next = e
	}
	s.last = e
	s.n++
}

func (s *linkedList[T, P]) remove(e *T) {
	at := P(e).place()
	if at.prev == nil {
		s.first = at.next
	} else {
		P(at.prev).place().next = at.next
	}
	if at.next == nil {
		s.last = at.prev
	} else {
		P(at.next).place().prev = at.prev
	}
	at.prev, at.next = nil, nil
	s.n--
}
