package dispatch

import (
	"cmp"
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
	state      waiterState
	line       *line // nil unless it is in one
	prev, next *waiter
	alarm      alarm         // its end or next heartbeat
	beat       time.Duration // when the next heartbeat is due
	since      int64         // number of the first batch that looked after it had come

	// These belong to whoever may call the Replier.
	answered    bool // the last call was made
	onlyIfEmpty bool // Wait.OnlyIfEmpty, until it has looked or found others in line
}

// popOptions is what a waiter's pops or leases have in common: an fdbpq.Op takes much more memory.
type popOptions struct {
	kind     fdbpq.OpKind
	end      fdbpq.End
	lease    time.Duration
	maxBytes int // what is left of it
}

// op returns the first pop of an attempt.
func (w *waiter) op() fdbpq.Op {
	return fdbpq.Op{
		Kind: w.pop.kind, Queue: w.request.Queue.Target, End: w.pop.end,
		Lease: w.pop.lease, MaxBytes: w.pop.maxBytes, Waits: true,
	}
}

// newWaiter makes a waiter of a request. The lane's lock is held.
func newWaiter(r *Request, ops []fdbpq.Op) *waiter {
	last := &ops[len(ops)-1]
	acks := LeadingAcks(ops)
	w := &waiter{request: *r, wanted: r.operations(ops) - acks}
	w.pop = popOptions{kind: last.Kind, end: last.End, lease: last.Lease, maxBytes: last.MaxBytes}
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

// ends reports whether the request ends as soon as the queue turns out to be empty.
func (w *waiter) ends() bool { return !w.waits() || w.state.isLate() }

// cancelled reports whether the request was cancelled, see Dispatcher.Cancel.
func (w *waiter) cancelled() bool { return w.waits() && w.request.Wait.cancelled }

// pending reports whether a request that has not ended counts as pending: one with a Wait does not while
// it waits.
func (w *waiter) pending() bool { return !w.waits() || !w.state.hasParked() }

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
		return withoutPlace(err)
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

// goesOn reports whether the waiter waits for more after an attempt that found n items and
// then err.
func (w *waiter) goesOn(n int, err error, now time.Time) bool {
	wait := w.request.Wait
	switch {
	case n == 0 && canWait(err):
		return true // runTimers ends it in time
	case wait == nil || !now.Before(wait.Until):
		return false
	case n > 0 && (w.onlyIfEmpty || !w.takesParts()):
		return false
	}
	return errors.Is(err, fdbpq.ErrEmpty) || errors.Is(err, fdbpq.ErrMaxLeased) || canWait(err)
}

// applyResults calls the Replier with the results of an attempt, and sets answered unless the waiter
// waits on. pops are the last operations, without acknowledgements.
func (l *lane) applyResults(w *waiter, ops []fdbpq.Op, results []fdbpq.Result, now time.Time) {
	w.request.Answered = now
	pops, found := ops, results
	if acks := LeadingAcks(ops); acks > 0 {
		if err := results[0].Err; err != nil {
			if !w.answered {
				l.endAll(w, ops, results, err)
			}
			return
		}
		if w.pop.lease == 0 {
			w.pop.lease = results[0].LeaseLength()
		}
		w.acks, w.request.acked = nil, true
		pops, found = ops[acks:], results[acks:]
		if len(pops) == 0 {
			return // its pops take their place in line now
		}
	}
	n := 0
	for n < len(found) && found[n].Err == nil {
		n++
	}
	var err error
	if n < len(found) {
		err = found[n].Err
		w.line.attempt.note(&found[n])
	}
	switch {
	case w.answered: // by the timers have answered it
		l.giveBack(w.request.Queue, pops, found)
	case n == w.wanted:
		w.answered = true
		w.request.Replier.Answer(&w.request, ops, results)
	case err != nil && !w.goesOn(n, err, now):
		if n == 0 || w.request.acked {
			err = w.waitedFor(err)
			for i := n; i < len(found); i++ {
				found[i].Err = w.waitedFor(found[i].Err)
			}
		}
		l.endAll(w, ops, results, err)
	case n > 0 && !w.takesParts():
		l.endAll(w, ops, results, fdbpq.ErrEmpty)
	case n > 0:
		l.deliver(w, pops[:n], found[:n])
	}
	w.onlyIfEmpty = false
}

// deliver delivers some of the items that the waiter wants.
func (l *lane) deliver(w *waiter, ops []fdbpq.Op, results []fdbpq.Result) {
	if w.pop.maxBytes > 0 {
		for i := range results {
			w.pop.maxBytes -= results[i].Item.Message.Size()
		}
		if w.pop.maxBytes <= 0 { // which would mean no limit
			l.endAll(w, ops, results, fdbpq.ErrMaxBytes)
			return
		}
	}
	w.wanted -= len(results)
	if !w.request.Replier.(WaitingReplier).Deliver(&w.request, ops, results) {
		w.answered = true
	}
}

// endAll ends the waiter with the results of its last attempt, and with err for the items
// that it did not try to get.
func (l *lane) endAll(w *waiter, ops []fdbpq.Op, results []fdbpq.Result, err error) {
	w.answered = true
	if w.wanted+LeadingAcks(ops) > len(ops) {
		l.calls.ops = append(append(l.calls.ops[:0], ops...), w.op())
		l.calls.results = append(append(l.calls.results[:0], results...), fdbpq.Result{Err: err})
		ops, results = l.calls.ops, l.calls.results
		defer l.calls.forget()
	}
	w.request.Replier.Answer(&w.request, ops, results)
}

// end ends a waiter that is not in a batch: with err, or because there is nothing for it, if err is
// nil or wraps fdbpq.ErrEmpty.
func (l *lane) end(w *waiter, err error) {
	w.answered = true
	w.request.Answered = time.Now()
	l.calls.ops = w.appendPops(l.calls.ops[:0], 1)
	defer l.calls.forget()
	if err = cmp.Or(err, fdbpq.ErrEmpty); !errors.Is(err, fdbpq.ErrEmpty) {
		w.request.Replier.Fail(&w.request, l.calls.ops, err)
		return
	}
	l.calls.results = append(l.calls.results[:0], fdbpq.Result{Err: err})
	w.request.Replier.Answer(&w.request, l.calls.ops, l.calls.results)
}
