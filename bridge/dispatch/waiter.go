package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// waiter is a request in the line of its queue. Most are requests with a Wait. A request without
// one is there only because it must not overtake those, and ends as soon as the queue turns out to
// be empty.
//
// There may be very many waiters, so a waiter should stay small.
type waiter struct {
	request Request
	acks    []fdbpq.Op // run with its first attempt; usually nil
	wanted  int        // items not delivered yet, at least 1

	// What its pops or leases have in common. An fdbpq.Op takes much more memory.
	kind     fdbpq.OpKind
	end      fdbpq.End
	count    bool
	lease    time.Duration
	holder   string
	maxBytes int // the rest of it

	// The lane's lock guards these.
	links[waiter]
	state  waiterState
	line   *line         // nil unless it is in one
	alarm  alarm         // its end or next heartbeat
	beat   time.Duration // when the next heartbeat is due
	joined int64         // when it joined its line, by lane.mu.clock

	// lane.calling guards these.
	answered    bool // the last call of the Replier was made
	onlyIfEmpty bool // Wait.OnlyIfEmpty, until it has looked or found others in line
	charged     int  // credits of the attempt in flight, without the items that it got
}

// op returns the first pop of an attempt.
func (w *waiter) op() fdbpq.Op {
	return fdbpq.Op{
		Kind: w.kind, Queue: w.request.Queue.Target, End: w.end,
		Lease: w.lease, Holder: w.holder, MaxBytes: w.maxBytes,
		Waits: true, Count: w.count,
	}
}

// newWaiter makes a waiter of a request. The lane's lock is held.
func newWaiter(r *Request, ops []fdbpq.Op) *waiter {
	last := &ops[len(ops)-1]
	acks := LeadingAcks(ops)
	w := &waiter{
		request: *r, wanted: r.operations(ops) - acks,
		kind: last.Kind, end: last.End, count: last.Count,
		lease: last.Lease, holder: last.Holder, maxBytes: last.MaxBytes,
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

// pending reports whether a request that has not ended counts as pending. A request with a Wait
// does not while it waits.
func (w *waiter) pending() bool { return !w.waits() || !w.state.hasParked() }

// outlives reports whether the waiter waits on after a batch of it failed. unknown says that the
// batch may have committed, retried that its line is looked at again at once.
func (w *waiter) outlives(unknown, retried bool) bool {
	switch {
	case !w.state.hasParked() && !(w.waits() && w.request.Wait.Retry):
		return false // to its client, its first batch is like that of any other request
	case unknown && w.leases():
		return false // it may have a lease. A pop would be undone
	case w.endsWhenEmpty():
		return retried // it waits for no more than the next look
	}
	return true
}

// leases reports whether the request wants leases.
func (w *waiter) leases() bool { return w.kind == fdbpq.OpLease }

// takesParts reports whether the Replier takes items as they come.
func (w *waiter) takesParts() bool {
	_, ok := w.request.Replier.(WaitingReplier)
	return ok
}

// waitedFor returns the error for a request that got nothing because of err.
func (w *waiter) waitedFor(err error) error {
	if w.waits() || w.request.acked {
		return asNothing(err)
	}
	return err
}

// appendPops appends n of the pops that the waiter wants to ops, which hold at most its
// acknowledgements.
func (w *waiter) appendPops(ops []fdbpq.Op, n int) []fdbpq.Op {
	op := w.op()
	op.Follows = len(ops) > 0
	return appendPops(append(ops, op), op, n-1)
}

// rest returns all operations that are left to do. The last one stands for all pops.
func (w *waiter) rest() []fdbpq.Op { return w.appendPops(slices.Clone(w.acks), 1) }

// asNew ends the waiter and returns its request, as if it were new and asked for what is left. It
// has to fail, or to come again.
func (w *waiter) asNew() (*Request, []fdbpq.Op) {
	w.answered = true
	w.request.Pops = w.wanted
	return &w.request, w.rest()
}

// waitsOn reports whether the waiter waits for more after an attempt that found n items and then
// err.
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

// lookedLocked reports whether a batch has looked since the waiter came, and found nothing for it.
// An earlier look does not count: another program may have pushed since.
func (w *waiter) lookedLocked() bool {
	return w.joined < w.line.emptied || w.leases() && w.joined < w.line.noLease
}

// ending is a waiter that has left its line to end, and why: an error that wraps fdbpq.ErrEmpty if
// there is nothing for it, else the error to fail with.
type ending struct {
	waiter *waiter
	why    error
}

// Credits limit how many items the requests of one queue that share them may have at a time. Each
// item takes a credit, and Dispatcher.AddCredits gives it back. While there are none, requests keep
// their places in line, and those behind them are served.
type Credits struct {
	// The lock of the queue's lane guards these.
	available int // below 0 if AddCredits took away more than there were
	parked    int // requests that share them, in line and in no batch
}

// NewCredits returns n credits. They belong to the requests of one queue.
func NewCredits(n int) *Credits { return &Credits{available: n} }

// addLocked adds n available credits. ln is the line of the queue, nil if nobody waits.
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

// countLocked counts a request that parks, or that no longer is parked.
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

// credits returns the Credits of the request, nil if it has no limit.
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

// chargeLocked takes credits for up to n pops of an attempt, and returns how many pops they allow.
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
