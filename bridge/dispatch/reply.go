package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// applyResults calls the Replier with the results of a look, and sets answered unless the waiter
// waits on. ops are its acknowledgements, if they were not done before, and its pops.
func (l *lane) applyResults(w *waiter, ops []fdbpq.Op, results []fdbpq.Result, now time.Time) {
	w.request.Answered = now

	// Either all acknowledgements are done, or nothing is.
	acks := LeadingAcks(ops)
	if acks > 0 && results[0].Err != nil {
		switch {
		case w.answered:
		case hasNoRoom(results[0].Err):
			l.startAgain(w)
		default:
			l.endWithResults(w, ops, results, results[0].Err)
		}
		return
	}
	if acks > 0 {
		w.noteAcked(results[:acks])
	}

	pops, found := ops[acks:], results[acks:]
	if len(pops) == 0 {
		return // its pops take their place in line now
	}

	// The first n pops found items. The others follow one that did not.
	n := 0
	for n < len(found) && found[n].Err == nil {
		n++
	}
	if n < len(found) {
		w.line.attempt.noteResult(&found[n])
	}

	if w.answered { // by the timers
		l.d.requeueLate(w.request.Queue, pops, found)
		return
	}

	// Items take their credits with them. finishWaiters refunds the others.
	w.charged = max(w.charged-n, 0)

	switch {
	case n == w.wanted:
		w.answered = true
		w.request.Replier.Answer(&w.request, ops, results)
	case n < len(found) && !w.waitsOn(n, found[n].Err, now):
		if n == 0 || w.request.acked {
			for i := n; i < len(found); i++ {
				found[i].Err = w.waitedFor(found[i].Err)
			}
		}
		l.endWithResults(w, ops, results, found[n].Err)
	case n > 0 && !w.takesParts():
		l.endWithResults(w, ops, results, fdbpq.ErrEmpty)
	case n > 0:
		l.deliverPart(w, pops[:n], found[:n])
	}
	w.onlyIfEmpty = false
}

// startAgain has a waiter leave its line, if it is in one, and its request come again as if it were
// new: behind others in the line, its acknowledgements would wait for their items.
func (l *lane) startAgain(w *waiter) {
	r, ops := w.asNew()
	if err := l.runAgain(r, ops); err != nil {
		r.fail(ops, err)
	}
}

// noteAcked notes that the acknowledgements with these results are done. Options that the pops
// leave out are as in the lease they follow.
func (w *waiter) noteAcked(results []fdbpq.Result) {
	w.lease = cmp.Or(w.lease, results[0].LeaseLength())
	w.holder = cmp.Or(w.holder, results[0].LeaseHolder())
	w.acks = nil
	w.request.noteAcked(results)
}

// deliverPart delivers some of the items that the waiter wants. It ends a waiter that must not get
// more bytes.
func (l *lane) deliverPart(w *waiter, ops []fdbpq.Op, results []fdbpq.Result) {
	if w.maxBytes > 0 {
		for i := range results {
			w.maxBytes -= results[i].Item.Message.Size()
		}
		if w.maxBytes <= 0 { // which would mean no limit
			l.endWithResults(w, ops, results, fdbpq.ErrMaxBytes)
			return
		}
	}

	w.wanted -= len(results)
	if !w.request.Replier.(WaitingReplier).Deliver(&w.request, ops, results) {
		w.answered = true
	}
}

// endWithResults ends the waiter with the results of its last attempt, and with err for the items
// that the attempt did not ask for.
func (l *lane) endWithResults(w *waiter, ops []fdbpq.Op, results []fdbpq.Result, err error) {
	w.answered = true
	if w.wanted+LeadingAcks(ops) > len(ops) {
		ops = append(slices.Clip(ops), w.op()) // a copy: the slice goes on with other requests
		results = append(slices.Clip(results), fdbpq.Result{Err: err})
	}
	w.request.Replier.Answer(&w.request, ops, results)
}

// endWaiter ends a waiter that is not in a batch. If why wraps fdbpq.ErrEmpty, there is nothing for
// it, and it gets an answer without items. Else it fails.
func (l *lane) endWaiter(w *waiter, why error) {
	w.answered = true

	ops := []fdbpq.Op{w.op()}
	if !errors.Is(why, fdbpq.ErrEmpty) {
		w.request.fail(ops, why)
		return
	}
	w.request.Answered = time.Now()
	w.request.Replier.Answer(&w.request, ops, []fdbpq.Result{{Err: why}})
}

// answerLate fails a waiter whose time is up while it is in a batch. It leaves its line when the
// batch ends. The caller holds lane.calling.
func (l *lane) answerLate(w *waiter) {
	if !w.answered {
		w.answered = true
		ops := w.rest()
		w.request.fail(ops, lateError(ops))
	}
}

// fail passes the error to the Replier.
func (r *Request) fail(ops []fdbpq.Op, err error) {
	r.Answered = time.Now()
	r.Replier.Fail(r, ops, err)
}

// call is the Replier of a request whose caller waits for the answer.
type call struct {
	done    chan struct{} // closed when there is an answer, unless the caller has gone
	ended   atomic.Bool   // there is an answer, or the caller has gone
	results []fdbpq.Result
	err     error
}

func newCall() *call { return &call{done: make(chan struct{})} }

// wait waits for the answer.
func (c *call) wait(ctx context.Context) ([]fdbpq.Result, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		if !c.ended.Swap(true) {
			return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
		}
		<-c.done
	}

	return c.results, c.err
}

// Answer implements Replier.
func (c *call) Answer(r *Request, ops []fdbpq.Op, results []fdbpq.Result) {
	c.results = slices.Clone(results)
	if c.ended.Swap(true) {
		r.Queue.lane.d.requeueLate(r.Queue, ops, c.results)
		return
	}
	close(c.done)
}

// Fail implements Replier.
func (c *call) Fail(_ *Request, _ []fdbpq.Op, err error) {
	c.err = err
	if !c.ended.Swap(true) {
		close(c.done)
	}
}
