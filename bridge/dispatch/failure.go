package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// failBatch ends a batch that failed, in one of three ways:
//
//	unknown   It may have committed. Its requests fail, and the lane settles it before it goes on.
//	refused   A full store refused its pushes. They fail, and all other requests run again, in
//	          batches without pushes: see batch.excludes.
//	neither   It had no effect. Its requests fail.
//
// Waiters do not fail if they can wait on: see waiter.outlives.
func (l *lane) failBatch(b *batch, err error) {
	if b.writes {
		l.d.health.noteFailure(err)
	}

	l.calling.Lock()
	defer l.calling.Unlock()

	unknown := kv.MaybeCommitted(err)
	if unknown {
		l.setUnsettled(b)
	}

	err = batchError(err)
	l.d.options.Warn("a batch failed", "requests", len(b.requests), "error", err)

	refused := !unknown && b.pushes && errors.Is(err, kv.ErrUnavailable)
	if refused {
		l.d.health.refusesPushes.Store(true)
	}

	for p := range b.each(nil) {
		r, ops := p.Request, p.ops
		if w := p.waiter; w != nil {
			if w.answered || w.outlives(unknown, refused) {
				continue
			}
			w.answered = true
			r, ops = &w.request, w.rest()
			r.Pops = w.wanted
		}

		if r.answered || refused && !anyPushes(ops) && l.runAgain(r, ops) == nil {
			continue
		}
		r.fail(ops, err)
	}

	l.finishWaiters(b, nil, err)
	if refused {
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
