package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// lane runs the requests of its queues in batches: whatever arrived while one batch was
// in flight forms the next. So an idle lane adds no delay, and a busy one shares each
// sync to disk among hundreds of requests.
//
// Two goroutines do the work: run builds batches and starts them, answer waits until
// they are durable and calls the Repliers. Two batches may be in flight at once if the
// engine pipelines, or if it is not serial and both only push. The second starts once
// it is as large as the first, because many small batches cost more than they gain.
type lane struct {
	d       *shared
	batcher *fdbpq.Batcher
	started chan *batch  // run to answer; unbuffered, which bounds the batches in flight
	popSize atomic.Int64 // expected bytes of an item that is popped or peeked, see observe
	timers  timers
	watch   *clockWatch   // of the clock by which items fall due
	over    chan struct{} // closed when run has returned

	calling sync.Mutex // guards calls; never taken by who has mu
	calls   calls

	mu struct {
		sync.Mutex
		changed sync.Cond // signalled when something that run waits for may have changed

		returns   backlog // what goes back into queues; it runs before the rest
		backlog   backlog // all other requests
		closed    bool
		ended     bool     // run accepts nothing more
		unsettled bool     // the outcome of a batch is unknown
		silent    int      // batches in flight with pushes that have no reply
		newest    *batch   // the batch started last, nil once it is answered
		inFlight  []*batch // that are taken and not finished
		overdue   alarm    // for the first of all requests whose time will be up
		doubtful  []*Queue // queues of the batches whose outcome is unknown

		lines   map[lineKey]*line
		ready   lineList // lines that the next batch looks at
		batches int64    // taken so far

		// For runTimers: waiters that were cancelled and are in no line any more, and queues whose waiting may
		// have changed.
		cancelled      []*waiter
		waitingChanged []*Queue
	}
	popBuffer []fdbpq.Op // room for addPopsLocked, guarded by mu
	spare     sync.Pool  // of *batch

	// For tests: called with the lock held. Usually nil.
	waiterMoved func(from, to waiterState)
	lineMoved   func(from, to lineState)
}

// opOverhead is roughly how many bytes an operation adds to a transaction.
const opOverhead = 256

// sweepBytes is roughly how many bytes a purge or redrive adds to a transaction.
const sweepBytes = 1 << 20

// firstBatchPops limits the pops in a batch while the size of the items is still
// unknown.
const firstBatchPops = 64

func newLane(d *shared) *lane {
	l := &lane{
		d:       d,
		batcher: fdbpq.NewBatcher(d.options.DB, d.options.Keyspace),
		started: make(chan *batch),
		timers:  newTimers(),
		over:    make(chan struct{}),
	}
	l.mu.lines = map[lineKey]*line{}
	if room := d.options.LeaseRoom; room > 0 {
		l.batcher.LimitRoom(room)
	}
	l.batcher.LimitReturned(min(d.options.MaxBatchBytes, fdbpq.MaxMessageSize))
	if now := d.options.Now; now != nil {
		l.batcher.SetNow(now)
		l.timers.storeNow = now
	}
	l.watch = newClockWatch(l.timers.storeNow)
	l.popSize.Store(int64(d.options.MaxBatchBytes / firstBatchPops))
	l.mu.changed.L = &l.mu
	l.spare.New = func() any { return &batch{} }
	return l
}

var errClosed = fmt.Errorf("%w: the service is shutting down: try again", ErrUnavailable)

// submit is Dispatcher.Submit.
func (l *lane) submit(r *Request, ops []fdbpq.Op) error {
	if r.Wait != nil && l.d.waiters.Add(1) > int64(l.d.options.MaxWaiters) {
		l.d.waiters.Add(-1)
		return ErrTooManyWaiters
	}
	if err := l.d.load.admit(r.Size); err != nil {
		l.d.releaseWaiter(r)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		l.d.release(r)
		return errClosed
	}
	l.pushLocked(&l.mu.backlog, r, ops)
	if l.enoughLocked() {
		l.mu.changed.Signal()
	}
	return nil
}

// requeue has a request run again, after those that wait now. It ignores the load limits.
func (l *lane) requeue(r *Request, ops []fdbpq.Op) error { return l.requeueIn(&l.mu.backlog, r, ops) }

// requeueIn adds a request to one of the backlogs, regardless of the load limits.
func (l *lane) requeueIn(to *backlog, r *Request, ops []fdbpq.Op) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ended {
		return errClosed
	}
	l.d.load.hold(r.Size)
	if r.Wait != nil {
		l.d.waiters.Add(1)
	}
	l.pushLocked(to, r, ops)
	l.mu.changed.Signal()
	return nil
}

// close makes run return when nothing is left to do.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	l.mu.changed.Signal()
	l.timers.wake()
}

// wake makes run check again whether there is something to do.
func (l *lane) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.changed.Signal()
}

// run starts batches until close has been called and everything is done. Once ctx has
// ended, waiting requests fail.
func (l *lane) run(ctx context.Context) {
	defer close(l.over)
	defer close(l.started)
	defer context.AfterFunc(ctx, l.wake)()
	for l.wait(ctx) {
		l.settle(ctx)
		b := l.take(ctx)
		if b == nil {
			continue
		}
		l.start(ctx, b)
		if len(b.requests) > 1 && errors.Is(b.pending.Failed(), kv.ErrCorrupt) {
			l.startEach(ctx, b)
			continue
		}
		l.started <- b
	}
}

func (l *lane) start(ctx context.Context, b *batch) {
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
	for _, single := range l.split(b) {
		l.mu.Lock()
		l.beginLocked(single)
		l.mu.Unlock()
		l.start(ctx, single)
		l.started <- single
	}
	l.calling.Lock()
	l.finishWaiters(b, nil, nil)
	l.calling.Unlock()
	l.finish(b)
}

// split moves the requests of a batch into batches of their own.
func (l *lane) split(b *batch) (singles []*batch) {
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
		l.noteInFlightLocked(single)
		singles = append(singles, single)
	}
	clear(b.requests)
	b.requests = b.requests[:0]
	return singles
}

// wait waits for something to do, and returns false when nothing more will come.
func (l *lane) wait(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A batch in flight may leave more to do: an outcome to settle, an item to requeue.
	expires := func() bool { return ctx.Err() != nil && l.mu.backlog.len() > 0 } // even if it is held back
	for !l.enoughLocked() && !l.mu.unsettled && !l.doneLocked(ctx) && !expires() {
		l.mu.changed.Wait()
	}
	l.mu.ended = !l.mu.unsettled && l.doneLocked(ctx)
	if l.mu.ended {
		l.timers.clear(&l.mu.overdue)
	}
	return !l.mu.ended
}

// doneLocked reports whether run ends, unless something is to be settled.
func (l *lane) doneLocked(ctx context.Context) bool {
	waiting := l.mu.returns.len() + l.mu.backlog.len() + len(l.mu.lines)
	return l.mu.closed && l.mu.newest == nil && waiting == 0 && (l.d.holds.Load() == 0 || ctx.Err() != nil)
}

// enoughLocked reports whether it is time to start a batch.
func (l *lane) enoughLocked() bool {
	n, newest := l.takeableLocked(), l.mu.newest
	if n == 0 || newest == nil {
		return n > 0
	}
	onlyPushes := !newest.nonPushes && l.mu.returns.len() == 0 && l.mu.backlog.nonPushes == 0 && l.mu.ready.n == 0
	traits := l.d.options.DB.Traits()
	return n >= len(newest.ops) && (newest.durable || traits.Pipelines || onlyPushes && !traits.Serial)
}

// settle puts back the items that a batch of unknown outcome popped, before anything
// else runs. Until it succeeds, it fails requests that have waited too long, and all of
// them while the store reports that it is unavailable.
func (l *lane) settle(ctx context.Context) {
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
		l.expire(ctx, false)
		if errors.Is(err, kv.ErrUnavailable) && !kv.MaybeCommitted(err) {
			l.failWaiting(err)
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

// setUnsettled records that the outcome of the batch is unknown; nil is one of before.
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

// failWaiting fails all waiting requests, because the store is not available.
func (l *lane) failWaiting(err error) {
	l.mu.Lock()
	waiting := [...]backlog{l.mu.returns, l.mu.backlog}
	l.mu.returns, l.mu.backlog = backlog{}, backlog{}
	l.mu.Unlock()
	err = fmt.Errorf("%w: the request was not run: try again: %w", ErrUnavailable, err)
	for i := range waiting {
		for failed := &waiting[i]; failed.len() > 0; failed.pop() {
			r, ops := failed.first()
			l.d.release(r)
			r.fail(ops, err)
		}
	}
}

// take returns the next batch, nil if there is none.
//
// A batch reorders its operations (see fdbpq.Batcher), and a batch that only reads sees
// only durable data. Only a publisher that pushes without asking for a reply and then
// reads could notice. So a len or info never shares a batch with an earlier push that has no
// reply, and a batch that only reads waits for such pushes.
//
// From a push that the store refused to one that it took, pushes have batches of their own:
// the store may be full, and take pops.
//
// What goes back into queues comes first. While too much of that, or of what may go back, is in memory, a
// batch takes no items: see Options.MaxKept.
//
// Requests that wait, and pops of queues where others wait, take their places in line. What
// the batch has for lines comes after its other operations. Where several pop many items from one
// queue, those for which the batch has no room form a line: if the queue turns out to be empty, all
// of them end together, instead of each filling a batch.
func (l *lane) take(ctx context.Context) *batch {
	l.expire(ctx, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.takeableLocked() == 0 {
		return nil
	}
	b := l.spare.Get().(*batch)
	l.mu.batches++
	b.number = l.mu.batches
	options, apart := &l.d.options, l.d.health.refusesPushes.Load()
	if waiting := l.nextLocked(); waiting == nil || !isAlone(waiting.first()) {
		l.takeReadyLocked(b)
	}
	for waiting := l.nextLocked(); waiting != nil; waiting = l.nextLocked() {
		r, ops := waiting.first()
		bytes := l.expect(r, ops)
		full := b.bytes+bytes > options.MaxBatchBytes || len(b.ops)+b.reserved+r.operations(ops) > options.MaxBatch
		alone := b.alone || r.alone
		mixes := apart && b.pushes != has(ops, fdbpq.OpPush)
		if full && b.many == r.Queue && r.Wait == nil && r.Pops > 1 && len(ops) == 1 {
			l.queueBehindLocked(r, ops)
			waiting.pop()
			continue
		}
		if len(b.ops)+b.reserved > 0 && (full || mixes || alone || b.silent && (has(ops, fdbpq.OpLen) || has(ops, fdbpq.OpInfo))) {
			break
		}
		if l.queuesUpLocked(r, ops) {
			l.queueUpLocked(b, r, ops)
		} else {
			b.add(r, ops)
			b.bytes += bytes
			if r.Pops > 1 {
				b.many = r.Queue
			}
			l.serveLocked(b, r, ops, apart)
		}
		waiting.pop()
	}
	l.addPopsLocked(b)
	if len(b.ops) == 0 {
		l.spare.Put(b)
		return nil
	}
	l.noteInFlightLocked(b)
	l.beginLocked(b)
	return b
}

// beginLocked makes b the newest batch, once it may start.
func (l *lane) beginLocked(b *batch) {
	for !b.writes && l.mu.silent > 0 {
		l.mu.changed.Wait()
	}
	if b.silent {
		l.mu.silent++
	}
	l.mu.newest = b
}

// expect estimates the bytes that the request adds to a transaction.
func (l *lane) expect(r *Request, ops []fdbpq.Op) int {
	bytes := r.Size + opOverhead*len(ops)
	if r.Pops > 1 {
		bytes += (r.Pops - 1) * l.popCost()
	}
	for i := range ops {
		switch kind := ops[i].Kind; {
		case movesItem(kind):
			bytes += int(l.popSize.Load())
		case kind == fdbpq.OpPurge || kind == fdbpq.OpRedrive:
			bytes += sweepBytes
		case kind == fdbpq.OpSweep: // those of a batch share their room
			bytes += sweepBytes / sweepPage
		}
	}
	return bytes
}

// observe adjusts the expected size of an item: up to the largest message at once, down
// slowly. So a batch has no more pops than there is room for: see fdbpq.Batcher.LimitReturned.
func (l *lane) observe(largest int, items bool) {
	expected := l.popSize.Load()
	if int64(largest) > expected {
		l.popSize.Store(int64(largest))
	} else if items {
		l.popSize.Store(expected - (expected-int64(largest)+7)/8)
	}
}
