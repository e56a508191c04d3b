package dispatch

import (
	"context"
	"errors"
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
		l.failLate(l.late, nil)
		l.failLate(l.outOfTouch, errOutOfTouch)
		l.late, l.outOfTouch = nil, nil
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
		timeout = max(timeout-waited, timeout-l.turnTime())
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
