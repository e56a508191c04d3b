package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// run starts batches until close has been called and everything is done. Once ctx has
// ended, waiting requests fail.
func (l *lane) run(ctx context.Context) {
	defer close(l.over)
	defer close(l.started)
	defer context.AfterFunc(ctx, l.wakeRun)()

	for l.awaitWork(ctx) {
		l.settleBatches(ctx)
		b := l.takeBatch(ctx)
		if b == nil {
			continue
		}

		l.startBatch(ctx, b)
		if len(b.requests) > 1 && errors.Is(b.pending.Failed(), kv.ErrCorrupt) {
			l.startEach(ctx, b)
			continue
		}
		l.started <- b
	}
}

// awaitWork waits for something to do, and returns false when nothing more will come.
func (l *lane) awaitWork(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	// A batch in flight may leave more to do: an outcome to settle, an item to requeue.
	expires := func() bool { return ctx.Err() != nil && l.mu.backlog.len()+l.mu.aside.len() > 0 } // even if they may not run
	for !l.enoughLocked() && !l.mu.unsettled && !l.doneLocked(ctx) && !expires() {
		l.mu.changed.Wait()
	}

	l.mu.ended = !l.mu.unsettled && l.doneLocked(ctx)
	if l.mu.ended {
		l.timers.clear(&l.mu.overdue)
		l.timers.clear(&l.mu.lazy)
	}
	return !l.mu.ended
}

// startBatch starts the transaction of a batch, which has what is left of the time of its oldest
// request, and at least what a request has whose turn came late.
func (l *lane) startBatch(ctx context.Context, b *batch) {
	timeout := l.d.options.RequestTimeout
	timeout = max(timeout-time.Since(b.oldest), timeout-l.turnTime())
	batchCtx, cancel := context.WithTimeout(ctx, timeout)
	b.cancel = cancel
	b.pending = l.batcher.Start(batchCtx, b.ops)
}

// startEach retries the requests of a batch that met damaged data one by one, so that
// only those that need the damaged data fail.
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
	if b.silent { // they are counted again, one by one
		l.mu.silent--
		b.silent = false
	}

	for r, ops := range b.each() {
		single := l.spare.Get().(*batch)
		single.number = b.number
		single.add(r, ops)
		if r.waiter != nil && r.waiter.line != nil {
			r.waiter.line.inFlight++ // one for each, besides that of b
			single.lines = append(single.lines, r.waiter.line)
		}
		l.mu.inFlight = append(l.mu.inFlight, single)
		singles = append(singles, single)
	}

	clear(b.requests)
	b.requests = b.requests[:0]
	return singles
}

// settleBatches puts back the items that a batch of unknown outcome popped, before anything
// else runs. Until it succeeds, it fails requests that have waited too long, and all of
// them while the store reports that it is unavailable.
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
			l.failLate(all, fmt.Errorf("%w: the request was not run: try again: %w", ErrUnavailable, err))
		}
		_ = backoff.Wait(ctx) // if ctx ends the next attempt fails and is the last
	}
}

// takeUnsettled returns the flag and clears it, so that a batch that fails during
// Settle can set it again.
func (l *lane) takeUnsettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.mu.unsettled
	l.mu.unsettled = false
	return was
}
