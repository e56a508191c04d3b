package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// waiter is a request in the line of its queue. Most are requests with a Wait. A request
// without one, which only must not overtake those, ends as soon as the queue
// turns out to be empty.
//
// There may be very many of them, so they should stay small.
type waiter struct {
	request Request
	pop     popOptions
	acks    []fdbpq.Op // to be done together with its first attempt; usually nil
	wanted  int        // items that were not delivered yet, at least 1

	// The lane's lock guards these.
	links[waiter]
	state waiterState
	line  *line         // nil unless it is in one
	alarm alarm         // its end or next heartbeat
	beat  time.Duration // when the next heartbeat is due
	since int64         // number of the first batch that looked after it had come

	// These belong to whoever may call the Replier.
	answered    bool // the last call was made
	onlyIfEmpty bool // Wait.OnlyIfEmpty, until it has looked or found others in line
	charged     int  // Credits of the attempt in flight, without those of items that it got
}

// popOptions is what a waiter's pops or leases have in common: an fdbpq.Op takes much more memory.
type popOptions struct {
	kind     fdbpq.OpKind
	end      fdbpq.End
	count    bool
	lease    time.Duration
	holder   string
	maxBytes int // what is left of it
}

// op returns the first pop of an attempt.
func (w *waiter) op() fdbpq.Op {
	return fdbpq.Op{
		Kind: w.pop.kind, Queue: w.request.Queue.Target, End: w.pop.end,
		Lease: w.pop.lease, Holder: w.pop.holder, MaxBytes: w.pop.maxBytes, Waits: true, Count: w.pop.count,
	}
}

// newWaiter makes a waiter of a request. The lane's lock is held.
func newWaiter(r *Request, ops []fdbpq.Op) *waiter {
	last := &ops[len(ops)-1]
	acks := LeadingAcks(ops)
	w := &waiter{request: *r, wanted: r.operations(ops) - acks}
	w.pop = popOptions{
		kind: last.Kind, end: last.End, lease: last.Lease, holder: last.Holder, maxBytes: last.MaxBytes, count: last.Count,
	}

	w.request.span, w.request.Pops = 0, 0
	w.request.waiter = w
	if acks > 0 {
		w.acks = slices.Clone(ops[:acks])
	}

	w.alarm.of = w
	if wait := r.Wait; wait != nil {
		wait.waiter, w.onlyIfEmpty = w, wait.OnlyIfEmpty
	}
	return w
}

// waits reports whether the request has a Wait.
func (w *waiter) waits() bool { return w.request.Wait != nil }

// endsWhenEmpty reports whether the request ends as soon as the queue turns out to be empty.
func (w *waiter) endsWhenEmpty() bool { return !w.waits() || w.state.isLate() }

// cancelled reports whether the request was cancelled, see Dispatcher.Cancel.
func (w *waiter) cancelled() bool { return w.waits() && w.request.Wait.cancelled }

// pending reports whether a request that has not ended counts as pending: one with a Wait does not
// while it waits.
func (w *waiter) pending() bool { return !w.waits() || !w.state.hasParked() }

// retries reports whether the request waits on after a batch that failed.
func (w *waiter) retries() bool { return w.state.hasParked() || w.waits() && w.request.Wait.Retry }

// leases reports whether the request wants leases.
func (w *waiter) leases() bool { return w.pop.kind == fdbpq.OpLease }

// takesParts reports whether the request gets its items as they come.
func (w *waiter) takesParts() bool {
	_, ok := w.request.Replier.(WaitingReplier)
	return ok
}

// waitedFor returns why a request got nothing, as it is to hear it.
func (w *waiter) waitedFor(err error) error {
	if w.waits() || w.request.acked {
		return asNothing(err)
	}
	return err
}

// appendPops appends n of the pops that the waiter wants to ops, which has nothing else but
// its acknowledgements.
func (w *waiter) appendPops(ops []fdbpq.Op, n int) []fdbpq.Op {
	op := w.op()
	op.Follows = len(ops) > 0
	return appendPops(append(ops, op), op, n-1)
}

// rest returns all operations that are left to do: the last stands for all pops.
func (w *waiter) rest() []fdbpq.Op { return w.appendPops(slices.Clone(w.acks), 1) }

// waitsOn reports whether the waiter waits for more after an attempt that found n items and
// then err.
func (w *waiter) waitsOn(n int, err error, now time.Time) bool {
	wait := w.request.Wait
	switch {
	case n == 0 && hasNoRoom(err):
		return true // runTimers ends it in time
	case wait == nil || !now.Before(wait.Until):
		return false
	case n > 0 && (w.onlyIfEmpty || !w.takesParts()):
		return false
	}
	return errors.Is(err, fdbpq.ErrEmpty) || errors.Is(err, fdbpq.ErrMaxLeased) || hasNoRoom(err)
}

// lookedLocked reports whether a batch that looked since the waiter came found nothing for it. What
// others found before it came may be wrong by now: another program may have pushed.
func (w *waiter) lookedLocked() bool {
	return w.since <= w.line.emptied || w.leases() && w.since <= w.line.noLease
}

// ending is a waiter that has left its line to end, and why: nil, or an error that wraps
// fdbpq.ErrEmpty, if there is nothing for it.
type ending struct {
	waiter *waiter
	why    error
}

// Credits bound how many items the requests of one queue that share them may have at a time: each
// item that one gets takes a credit, which Dispatcher.AddCredits gives back. A request that waits
// while there are none keeps its place in line, and nobody behind it waits for that.
type Credits struct {
	// The lock of the queue's lane guards these.
	available int // below 0 if more were taken away than there were
	parked    int // requests that share them, in line and in no batch
}

// NewCredits returns n credits.
func NewCredits(n int) *Credits { return &Credits{available: n} }

// addLocked changes how many are available. The line is that of the queue, nil if nobody waits.
func (c *Credits) addLocked(ln *line, n int) {
	before := c.available
	c.available += n
	switch {
	case before > 0 && c.available <= 0 && c.parked > 0:
		ln.blocked += c.parked
	case before <= 0 && c.available > 0 && c.parked > 0:
		ln.blocked -= c.parked
	}
}

// countLocked counts a request that parks, or ends that.
func (c *Credits) countLocked(ln *line, parks bool) {
	n := -1
	if parks {
		n = 1
	}
	c.parked += n
	if c.available <= 0 {
		ln.blocked += n
	}
}

// credits are those of the request, nil if nothing bounds it.
func (w *waiter) credits() *Credits {
	if w.waits() {
		return w.request.Wait.Credits
	}
	return nil
}

// blocked reports whether the request may get nothing now for lack of credits.
func (w *waiter) blocked() bool {
	c := w.credits()
	return c != nil && c.available <= 0
}

// chargeLocked takes credits for up to n pops of an attempt, and returns for how many.
func (w *waiter) chargeLocked(n int) int {
	if c := w.credits(); c != nil {
		n = min(n, c.available)
		w.charged = n
		c.addLocked(w.line, -n)
	}
	return n
}

// refundLocked gives back the credits of an attempt that got no items.
func (w *waiter) refundLocked() {
	if c := w.credits(); c != nil {
		c.addLocked(w.line, w.charged)
		w.charged = 0
	}
}
