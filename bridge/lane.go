package bridge

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

// lane runs the requests of the queues that belong to it, in batches: what
// arrived while one batch was under way is the next. So an idle lane adds no
// delay and a busy one shares each sync to disk among hundreds of requests.
//
// Two goroutines do the work: run puts together and starts batches, reply
// waits until they are durable and answers. Where the engine pipelines, or is not
// serial and there are pushes only, there are up to two batches under way; the second is
// begun once it is as large as the first, because many small batches cost more than
// they gain.
type lane struct {
	b       *Bridge
	batcher *fdbpq.Batcher
	started chan *batch  // run to reply; unbuffered, which is what bounds the batches under way
	popSize atomic.Int64 // bytes to expect of a pop or peek, see observe

	mu struct {
		sync.Mutex
		changed sync.Cond // something below changed that run may wait for

		waiting   []waiting
		head      int // index in waiting of the first that still waits
		closed    bool
		ended     bool   // run takes nothing any more
		unsettled bool   // the outcome of a batch is unknown
		others    int    // of those waiting that are not pushes
		silent    int    // batches under way that have pushes without a reply
		newest    *batch // the batch begun last, nil when it has been answered

		unconfirmed int // batches whose replies NATS may still refuse
	}
	spare sync.Pool // of *batch
}

type waiting struct {
	request
	op fdbpq.Op
}

// batch is requests and, at the same indexes, their operations.
type batch struct {
	requests []request
	ops      []fdbpq.Op
	silent   bool // has a push without a reply
	writes   bool
	others   bool // has something else than pushes
	durable  bool // or failed: only the answers are missing

	pending *fdbpq.Pending
	cancel  context.CancelFunc

	// While the replies are unconfirmed:
	lane      *lane // nil for those that came from none
	results   []fdbpq.Result
	itemBytes int       // of results
	tracked   bool      // unconfirmed knows it
	sent      time.Time // zero until all replies have been handed to NATS
	asked     bool      // before the PING
	rounds    int
}

// cost is about the bytes that the batch takes while it is unconfirmed.
func (b *batch) cost() int { return b.itemBytes + replyOverhead*len(b.requests) }

// opOverhead is about what an operation adds to a transaction, in bytes.
const opOverhead = 256

// firstBatchPops is the number of pops in a batch as long as nothing is known
// about the size of the items.
const firstBatchPops = 64

func newLane(b *Bridge) *lane {
	l := &lane{
		b:       b,
		batcher: fdbpq.NewBatcher(b.db, b.keyspace),
		started: make(chan *batch),
	}
	l.popSize.Store(int64(b.options.MaxBatchBytes / firstBatchPops))
	l.mu.changed.L = &l.mu
	l.spare.New = func() any { return &batch{} }
	return l
}

// add takes a request, or returns ErrOverloaded or ErrUnavailable.
func (l *lane) add(r *request, op *fdbpq.Op) error {
	if err := l.b.load.admit(r.size); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		l.b.load.release(1, r.size)
		return fmt.Errorf("%w: the service is shutting down: try again", ErrUnavailable)
	}
	l.appendLocked(r, op)
	if l.enoughLocked() {
		l.mu.changed.Signal()
	}
	return nil
}

// readd takes a request whatever the load is, unless run has ended.
func (l *lane) readd(r *request, op *fdbpq.Op) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.ended {
		return false
	}
	l.b.load.hold(r.size)
	l.appendLocked(r, op)
	l.mu.changed.Signal()
	return true
}

// appendLocked adds to those that wait. What was taken from the front is given
// up when it is the larger part, so that a lane that is never empty does not
// grow for ever.
func (l *lane) appendLocked(r *request, op *fdbpq.Op) {
	if n := len(l.mu.waiting); n == cap(l.mu.waiting) && l.mu.head > n/2 {
		n = copy(l.mu.waiting, l.mu.waiting[l.mu.head:])
		clear(l.mu.waiting[n:])
		l.mu.waiting, l.mu.head = l.mu.waiting[:n], 0
	}
	l.mu.waiting = append(l.mu.waiting, waiting{*r, *op})
	if op.Kind != fdbpq.OpPush {
		l.mu.others++
	}
}

// close makes run return when nothing is left to do.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	l.mu.changed.Signal()
}

// run puts together and starts batches until close was called and all is done. When
// ctx ends what waits is answered 503.
func (l *lane) run(ctx context.Context) {
	defer close(l.started)
	for l.wait() {
		l.settle(ctx)
		b := l.take(ctx)
		if b == nil {
			continue
		}
		l.begin(ctx, b)
		if len(b.ops) > 1 && errors.Is(b.pending.Failed(), kv.ErrCorrupt) {
			l.beginEach(ctx, b)
			continue
		}
		l.started <- b
	}
}

func (l *lane) begin(ctx context.Context, b *batch) {
	oldest := b.requests[0].received
	timeout := l.b.options.RequestTimeout
	timeout = max(timeout-time.Since(oldest), timeout/2)
	batchCtx, cancel := context.WithTimeout(ctx, timeout)
	b.cancel = cancel
	b.pending = l.batcher.Start(batchCtx, b.ops)
}

// beginEach begins the requests of a batch that needs damaged data one by one, so
// that only those fail that need it themselves.
func (l *lane) beginEach(ctx context.Context, b *batch) {
	b.cancel()
	for i := range b.requests {
		one := l.spare.Get().(*batch)
		one.add(&waiting{b.requests[i], b.ops[i]})
		l.mu.Lock()
		if one.silent {
			l.mu.silent++
		}
		l.mu.newest = one
		l.mu.Unlock()
		l.begin(ctx, one)
		l.started <- one
	}
	clear(b.requests)
	clear(b.ops)
	b.requests, b.ops = b.requests[:0], b.ops[:0]
	l.finish(b)
}

// wait waits for something to do, and returns false when that will not come.
func (l *lane) wait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// While a batch is under way or unconfirmed there may be more to come from
	// it: an outcome to be settled, an item to be restored.
	for !l.enoughLocked() && !l.mu.unsettled && (!l.mu.closed || l.mu.newest != nil || l.mu.unconfirmed > 0) {
		l.mu.changed.Wait()
	}
	l.mu.ended = l.mu.head == len(l.mu.waiting) && !l.mu.unsettled && l.mu.newest == nil && l.mu.unconfirmed == 0
	return !l.mu.ended
}

// enoughLocked reports whether it is time to begin a batch.
func (l *lane) enoughLocked() bool {
	n, newest := len(l.mu.waiting)-l.mu.head, l.mu.newest
	if n == 0 || newest == nil {
		return n > 0
	}
	onlyPushes := !newest.others && l.mu.others == 0
	return n >= len(newest.ops) && (newest.durable || l.b.db.Pipelines() || onlyPushes && !l.b.db.Serial())
}

// settle makes sure that the items popped by a batch of unknown outcome are
// back before anything else is run. Meanwhile requests that are too old are
// answered, and all as long as the store says that it is not available.
func (l *lane) settle(ctx context.Context) {
	var backoff kv.Backoff
	for l.takeUnsettled() {
		attempt, cancel := context.WithTimeout(ctx, l.b.options.RequestTimeout/2)
		err := l.batcher.Settle(attempt)
		cancel()
		if err == nil {
			continue
		}
		l.b.quiet.store.warn("a batch of unknown outcome is not settled yet", "error", err)
		if ctx.Err() != nil {
			return
		}
		l.setUnsettled()
		l.expire(ctx)
		if errors.Is(err, kv.ErrUnavailable) && !kv.MaybeCommitted(err) {
			l.refuseWaiting(err)
		}
		_ = backoff.Wait(ctx) // if ctx ends the next attempt fails and is the last
	}
}

// takeUnsettled returns the flag and lowers it, so that a batch that fails
// during Settle raises it again.
func (l *lane) takeUnsettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.mu.unsettled
	l.mu.unsettled = false
	return was
}

func (l *lane) setUnsettled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.unsettled = true
	l.mu.changed.Signal()
}

// expire answers those that waited too long, and all when ctx has ended. They
// were not run.
func (l *lane) expire(ctx context.Context) {
	before := time.Now().Add(-l.b.options.RequestTimeout)
	for {
		l.mu.Lock()
		if l.mu.head == len(l.mu.waiting) {
			l.mu.Unlock()
			return
		}
		w := &l.mu.waiting[l.mu.head]
		if ctx.Err() == nil && (w.restores || w.received.After(before)) {
			l.mu.Unlock()
			return
		}
		r := w.request
		l.dropLocked()
		l.mu.Unlock()
		l.b.load.release(1, r.size)
		l.b.refuse(&r, fmt.Errorf("%w: the request waited %v for its turn and was not run: try again",
			ErrUnavailable, time.Since(r.received).Round(time.Millisecond)))
	}
}

// dropLocked removes the first of those that wait.
func (l *lane) dropLocked() {
	if l.mu.waiting[l.mu.head].op.Kind != fdbpq.OpPush {
		l.mu.others--
	}
	l.mu.waiting[l.mu.head] = waiting{} // frees what it refers to
	l.mu.head++
	if l.mu.head == len(l.mu.waiting) {
		l.mu.waiting, l.mu.head = l.mu.waiting[:0], 0
	}
}

// take returns the next batch, nil if there is none.
//
// Operations of a batch are reordered (see fdbpq.Batcher), and one that only
// reads sees only what is durable. That shows only to a publisher who sent a
// push without waiting for its reply and then asks: so a len does not share a
// batch with an earlier push that has no reply, and a batch that only reads
// waits for such pushes.
func (l *lane) take(ctx context.Context) *batch {
	l.expire(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.head == len(l.mu.waiting) {
		return nil
	}
	b := l.spare.Get().(*batch)
	bytes, options := 0, &l.b.options
	for l.mu.head < len(l.mu.waiting) && len(b.ops) < options.MaxBatch {
		w := &l.mu.waiting[l.mu.head]
		bytes += w.size + opOverhead
		if returnsItem(w.op.Kind) {
			bytes += int(l.popSize.Load())
		}
		if len(b.ops) > 0 && (bytes > options.MaxBatchBytes || b.silent && w.op.Kind == fdbpq.OpLen) {
			break
		}
		b.add(w)
		l.dropLocked()
	}
	for !b.writes && l.mu.silent > 0 {
		l.mu.changed.Wait()
	}
	if b.silent {
		l.mu.silent++
	}
	l.mu.newest = b
	return b
}

func (b *batch) add(w *waiting) {
	b.requests = append(b.requests, w.request)
	b.ops = append(b.ops, w.op)
	push := w.op.Kind == fdbpq.OpPush
	b.others = b.others || !push
	b.writes = b.writes || push || w.op.Kind == fdbpq.OpPop
	b.silent = b.silent || push && w.reply == ""
}

func returnsItem(k fdbpq.OpKind) bool { return k != fdbpq.OpPush && k != fdbpq.OpLen }

// load is the requests that wait or run in all lanes.
type load struct {
	requests, bytes       atomic.Int64
	maxRequests, maxBytes int64
}

var (
	tooManyRequests = refusalOf(fmt.Errorf("%w: as many requests are waiting as may: try again later", ErrOverloaded))
	tooManyBytes    = refusalOf(fmt.Errorf("%w: requests of as many bytes are waiting as may: try again later", ErrOverloaded))
)

// admit counts a request, or returns ErrOverloaded.
func (l *load) admit(size int) error {
	if l.requests.Add(1) > l.maxRequests {
		l.requests.Add(-1)
		return tooManyRequests
	}
	if l.bytes.Add(int64(size))-int64(size) > l.maxBytes {
		l.release(1, size)
		return tooManyBytes
	}
	return nil
}

// hold counts a request whatever the load is.
func (l *load) hold(size int) {
	l.requests.Add(1)
	l.bytes.Add(int64(size))
}

func (l *load) release(requests, bytes int) {
	l.requests.Add(int64(-requests))
	l.bytes.Add(int64(-bytes))
}
