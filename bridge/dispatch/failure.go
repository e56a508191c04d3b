package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// failBatch fails the requests of a batch that did not run, or whose outcome is unknown.
func (l *lane) failBatch(b *batch, err error) {
	if b.writes {
		l.d.health.noteFailure(err)
	}

	l.calling.Lock()
	defer l.calling.Unlock()

	if kv.MaybeCommitted(err) {
		l.setUnsettled(b)
	}
	err = batchError(err)
	l.d.options.Warn("a batch failed", "requests", len(b.requests), "error", err)

	// A full store refuses pushes, and with them the rest of their batch. The rest runs again, in
	// batches without pushes: see batch.excludes.
	unknown := errors.Is(err, ErrUnknownOutcome)
	refused := b.pushes && errors.Is(err, kv.ErrUnavailable) && !unknown
	if refused {
		l.d.health.refusesPushes.Store(true)
	}
	runsAgain := refused && b.nonPushes

	for p := range b.each(nil) {
		r, ops, w := p.Request, p.ops, p.waiter
		if r.answered || w != nil && w.answered {
			continue
		}

		pops := 0
		if w != nil {
			// It waits on, unless it may have an item that nobody would put back. A waiter that
			// ends when the queue is empty waits only if the next batch looks at once.
			mayHaveItem := unknown && w.leases()
			if w.retries() && (!w.endsWhenEmpty() || runsAgain) && !mayHaveItem {
				continue
			}

			// The Replier has no call for the waiter yet, so its request may run again as a new
			// one.
			w.answered = true
			r, ops, pops = &w.request, w.rest(), w.wanted
		}

		if runsAgain && !anyPushes(ops) {
			again := *r
			again.Pops = pops
			if l.runAgain(&again, ops) == nil {
				continue
			}
		}
		r.fail(ops, err)
	}

	l.finishWaiters(b, nil, err)
	if runsAgain {
		l.retryLines(b)
	}
	wakeQueues(l.d, l.d.filledQueues(b.pending), b)
}

// setUnsettled records that the outcome of the batch is unknown. nil stands for an earlier batch
// that is still unsettled.
func (l *lane) setUnsettled(b *batch) {
	var filled []*Queue
	if b != nil {
		filled = l.d.filledQueues(b.pending)
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.mu.unsettled = true
	if b != nil {
		for i := range b.requests {
			l.mu.doubtful = append(l.mu.doubtful, b.requests[i].Queue)
		}
		l.mu.doubtful = append(l.mu.doubtful, filled...)
		l.mu.ending = append(l.mu.ending, b.pending.Ended()...)
	}
	l.mu.changed.Signal()
}

// settleBatches puts back the items that a batch of unknown outcome popped, before anything else
// runs. Until it succeeds, it fails requests that have waited too long, and all of them while the
// store reports that it is unavailable.
func (l *lane) settleBatches(ctx context.Context) {
	var backoff kv.Backoff
	for l.takeUnsettled() {
		attempt, cancel := context.WithTimeout(ctx, l.d.options.RequestTimeout/2)
		err := l.batcher.Settle(attempt)
		cancel()
		if err == nil {
			l.wakeDoubtful()
			continue
		}

		l.d.options.Warn("a batch of unknown outcome is not settled yet", "error", err)
		if ctx.Err() != nil {
			return
		}

		l.setUnsettled(nil)
		l.failOverdue(ctx)
		if errors.Is(err, kv.ErrUnavailable) && !kv.MaybeCommitted(err) {
			l.mu.Lock()
			all := l.takeLateLocked(true)
			l.mu.Unlock()
			l.failLate(all, fmt.Errorf("%w: %s: %w", ErrUnavailable, notRun, err))
		}
		_ = backoff.Wait(ctx) // if ctx ends the next attempt fails and is the last
	}
}

// takeUnsettled returns the flag and clears it, so that a batch that fails during Settle can set it
// again.
func (l *lane) takeUnsettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	was := l.mu.unsettled
	l.mu.unsettled = false
	return was
}

// wakeDoubtful wakes the lines of queues that may have got items from batches of unknown outcome,
// whether those committed or were undone, and tells of the jobs that these may have ended.
func (l *lane) wakeDoubtful() {
	l.mu.Lock()
	queues, jobs := l.mu.doubtful, l.mu.ending
	l.mu.doubtful, l.mu.ending = nil, nil
	l.mu.Unlock()
	wakeQueues(l.d, queues, nil) // queues of other lanes may have got dead letters
	l.d.tellEnded(jobs)
}

// retryLines has the lines of a failed batch looked at again at once.
func (l *lane) retryLines(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, ln := range b.lines {
		l.wakeLineLocked(ln, 1)
	}
}
