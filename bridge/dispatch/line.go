package dispatch

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// line is the requests that wait for items of one queue, at either end, in the order in which they
// came. While there is a line, the queue was empty when it was last looked at, or the line has a
// budget, which says that it is to be looked at again. As long as a batch has operations of the first
// waiters, no other pops from the queue, so nobody is overtaken.
//
// The lane's lock guards a line, except as stated.
type line struct {
	links[line] // in lane.mu.ready or lane.mu.held

	queue   *Queue
	waiters chain[waiter, *waiter]
	ending  int // of them: see waiter.endsWhenEmpty
	leases  int // of them
	blocked int // of those, in no batch and without credits
	state   lineState
	limit   leaseLimit

	// budget is how many pops the next batch should have: as many as items may be there. With guess
	// there may be more.
	budget int
	guess  bool

	reserved int // pops in the batch that is being made
	inFlight int // batches in flight that have its operations
	attempt  attempt
	alarm    alarm // when to look again

	// emptied is the number of the last batch that found nothing, noLease that of the last one that
	// found nothing to lease.
	emptied, noLease int64

	// failed is why the last attempt failed, nil if it did not. nothing is why the last that did
	// not found nothing: fdbpq.ErrEmpty or an error that wraps it; nil if none has.
	failed, nothing error
}

// lineKey names a queue. There may be two Queue objects for it for a while, if the registry
// has forgotten the first.
type lineKey struct {
	kind subjects.Kind
	name string
}

func (q *Queue) lineKey() lineKey { return lineKey{q.Kind, q.Name} }

// servable reports whether a batch can have pops of the line.
func (ln *line) servable() bool {
	return ln.waiters.n > ln.leases || ln.limit != limitInForce && ln.leases > ln.blocked
}

// attempt is what the batches in flight have found out for a line. Its owner is the goroutine that may
// call the Repliers.
type attempt struct {
	pops   int
	unused int  // of the budget
	guess  bool // as in line
	failed error
	empty  error     // why a pop found nothing; nil if none did
	stuck  error     // why a pop failed in another way
	full   error     // why a lease found that too many items are leased
	due    time.Time // when the next item falls due; zero if none does
}

// noteResult records the result of a pop that found nothing.
func (f *attempt) noteResult(r *fdbpq.Result) {
	switch {
	case hasNoRoom(r.Err):
		f.stuck = r.Err
	case errors.Is(r.Err, fdbpq.ErrEmpty):
		f.empty = r.Err
		f.due = r.NextDue // that of the last pop is the most recent
	case errors.Is(r.Err, fdbpq.ErrMaxLeased):
		f.full, f.due = r.Err, r.NextDue
	default:
		f.stuck = r.Err
	}
}
