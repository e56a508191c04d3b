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

	// A full store refuses pushes, and with them the rest of their batch. From now on pushes have
	// batches of their own: see batch.excludes.
	unknown := errors.Is(err, ErrUnknownOutcome)
	if b.pushes && errors.Is(err, kv.ErrUnavailable) && !unknown {
		l.d.health.refusesPushes.Store(true)
	}

	for r, ops := range b.each() {
		w := r.waiter
		if r.answered || w != nil && w.answered {
			continue
		}

		if w != nil {
			// It waits on, unless its time is up, or it may have an item that nobody would put
			// back.
			mayHaveItem := unknown && w.leases()
			if w.retries() && !w.endsWhenEmpty() && !mayHaveItem {
				continue
			}
			w.answered = true
			r, ops = &w.request, w.rest()
		}
		r.fail(ops, err)
	}

	l.finishWaiters(b, nil, err)
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
		l.failOverdue(ctx, false)
		if errors.Is(err, kv.ErrUnavailable) && !kv.MaybeCommitted(err) {
			l.mu.Lock()
			all := l.takeLateLocked(true, true)
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
// whether those committed or were undone.
func (l *lane) wakeDoubtful() {
	l.mu.Lock()
	queues := l.mu.doubtful
	l.mu.doubtful = nil
	l.mu.Unlock()
	wakeQueues(l.d, queues, nil) // queues of other lanes may have got dead letters
}
