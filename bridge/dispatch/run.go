package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// run starts batches until close has been called and everything is done. Once ctx ends, waiting
// requests fail.
func (l *lane) run(ctx context.Context) {
	defer close(l.ended)
	defer close(l.started)
	defer context.AfterFunc(ctx, l.wakeRun)()

	for l.awaitWork(ctx) {
		l.settleBatches(ctx)
		b := l.takeBatch(ctx)
		for _, r := range l.refused {
			l.refuse(r)
		}
		l.refused = nil
		if b == nil {
			continue
		}

		// Damaged data fails a whole batch, so each of its requests gets a batch of its own.
		l.startBatch(ctx, b)
		if len(b.requests) > 1 && errors.Is(b.pending.Failed(), kv.ErrCorrupt) {
			l.startEach(ctx, b)
			continue
		}
		l.started <- b
	}
}

// answerBatches waits for the batches that run has started, in order, and answers their requests.
func (l *lane) answerBatches() {
	for b := range l.started {
		results, err := b.pending.Wait()
		b.cancel()

		// Only the replies are still to be sent, so the next batch need not wait for this one.
		l.mu.Lock()
		b.durable = true
		l.mu.changed.Signal()
		l.mu.Unlock()

		if err == nil {
			l.answerBatch(b, results)
		} else {
			l.failBatch(b, err)
		}

		l.d.noteBatch(b.pending)
		l.finishBatch(b)
		l.batcher.Reuse(results)
	}
}

// awaitWork waits for something to do, and returns false when nothing more will come.
func (l *lane) awaitWork(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	// When ctx ends, the backlogs must fail, even requests that may not run now.
	expired := func() bool {
		return ctx.Err() != nil && l.mu.backlog.len()+l.mu.aside.len() > 0
	}

	// The lane is not done while a batch is in flight: it may leave an outcome to settle, or an
	// item to put back.
	for !l.enoughLocked() && !l.mu.unsettled && !l.doneLocked(ctx) && !expired() {
		l.mu.changed.Wait()
	}

	l.mu.ended = !l.mu.unsettled && l.doneLocked(ctx)
	if l.mu.ended {
		l.timers.clear(&l.mu.overdue)
		l.timers.clear(&l.mu.lazy)
	}

	return !l.mu.ended
}

// startBatch starts the transaction of a batch. Its timeout is the rest of the time of its oldest
// request, but at least a quarter of RequestTimeout. If that time is over, because the process
// stood still since the batch was made, the batch fails.
func (l *lane) startBatch(ctx context.Context, b *batch) {
	timeout, waited := l.d.options.RequestTimeout, time.Since(b.oldest)
	if waited < timeout {
		timeout = max(timeout-waited, timeout-TurnTime(timeout))
	} else {
		timeout = 0
	}

	batchCtx, cancel := context.WithTimeout(ctx, timeout)
	b.cancel = cancel
	b.pending = l.batcher.Start(batchCtx, b.ops)
}

// startEach retries the requests of a batch that met damaged data one by one, so that only those
// that need the damaged data fail.
func (l *lane) startEach(ctx context.Context, b *batch) {
	b.cancel()
	for _, single := range l.splitBatch(b) {
		l.mu.Lock()
		l.makeNewestLocked(single)
		l.mu.Unlock()
		l.startBatch(ctx, single)
		l.started <- single
	}

	l.calling.Lock()
	l.finishWaiters(b, nil, nil)
	l.calling.Unlock()
	l.finishBatch(b)
}

// splitBatch moves the requests of a batch into batches of their own.
func (l *lane) splitBatch(b *batch) (singles []*batch) {
	l.calling.Lock() // the timers may be answering them
	defer l.calling.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()

	// makeNewestLocked counts each single batch that is silent.
	if b.silent {
		l.mu.silent--
		b.silent = false
	}

	for p := range b.each(nil) {
		single := l.spare.Get().(*batch)
		single.look = b.look
		single.add(p.Request, p.ops)
		if p.waiter != nil && p.waiter.line != nil {
			p.waiter.line.inFlight++ // b itself counts until finishWaiters
			single.lines = append(single.lines, p.waiter.line)
		}
		l.mu.inFlight = append(l.mu.inFlight, single)
		singles = append(singles, single)
	}

	clear(b.requests)
	b.requests = b.requests[:0]
	return singles
}

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
			r, ops = w.asNew()
		}

		if r.answered || refused && !anyPushes(ops) && l.runAgain(r, ops) == nil {
			continue
		}
		r.fail(ops, err)
	}

	l.finishWaiters(b, nil, err)
	if refused {
		l.mu.Lock()
		for _, ln := range b.lines {
			l.wakeLineLocked(ln, 1)
		}
		l.mu.Unlock()
	}
	wakeQueues(l.d, l.d.filledQueues(b.pending), b)
}

// setUnsettled records that the outcome of the batch is unknown. nil stands for an earlier batch
// that is still unsettled.
func (l *lane) setUnsettled(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.mu.unsettled = true
	if b != nil {
		for i := range b.requests {
			l.mu.doubtful = append(l.mu.doubtful, b.requests[i].Queue)
		}
		l.mu.doubtful = append(l.mu.doubtful, l.d.filledQueues(b.pending)...)
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
			why := fmt.Errorf("%w: %s: %w", ErrUnavailable, notRun, err)
			for _, r := range all {
				l.refuse(refusal{r, why})
			}
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
