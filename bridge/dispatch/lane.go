package dispatch

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// lane runs the requests of its queues in batches: whatever arrived while one batch was
// in flight forms the next. So an idle lane adds no delay, and a busy one shares each
// sync to disk among hundreds of requests.
//
// run builds batches and starts them, answerBatches waits until they are durable and calls the
// Repliers. Two may be in flight at once if the engine pipelines, or if it is not serial and both
// only push. The second starts once it is as large as the first, because many small batches cost
// more than they gain.
type lane struct {
	d       *shared
	batcher *fdbpq.Batcher
	started chan *batch  // run to answerBatches; unbuffered, which bounds the batches in flight
	popSize atomic.Int64 // expected bytes of an item of a queue of which nothing is known, see observeResults
	timers  timers
	watch   *clockWatch   // of the clock by which items fall due
	over    chan struct{} // closed when run has returned

	// calling is held while somebody calls Repliers of requests that wait, or of requests that have
	// run. So calls for one queue come one at a time. It is never taken by who has mu.
	calling sync.Mutex
	rings   int64 // of tellFilled, so far; guarded by calling

	mu struct {
		sync.Mutex
		changed sync.Cond // signalled when something that run waits for may have changed

		returns   backlog // what goes back into queues
		backlog   backlog // all other requests, but for
		aside     backlog // those of queues that took much of a batch, or of which too much is kept: see takeBatch
		closed    bool
		ended     bool     // run accepts nothing more
		unsettled bool     // the outcome of a batch is unknown
		silent    int      // batches in flight with pushes that have no reply
		newest    *batch   // the batch started last, nil once it is answered
		inFlight  []*batch // that are taken and not finished
		overdue   alarm    // for the first of all requests whose time will be up
		lazy      alarm    // for the first of the lazy requests in the backlog
		lazyDue   bool     // it went off, or a batch has left some
		doubtful  []*Queue // queues of the batches whose outcome is unknown

		lines   map[lineKey]*line
		ready   chain[line, *line] // lines that the next batch looks at, but for
		held    chain[line, *line] // those that may not be served while too much is kept
		frees   int64              // load.frees when ready last got those that are held
		batches int64              // taken so far

		// For runTimers: waiters that were cancelled and are in no line any more.
		cancelled []*waiter
	}
	popBuffer []fdbpq.Op // room for addPopsLocked, guarded by mu
	spare     sync.Pool  // of *batch

	// For tests: called with the lock held. Usually nil.
	waiterMoved func(from, to waiterState)
	lineMoved   func(from, to lineState)
}

// firstBatchPops limits the pops in a batch while the size of the items is still
// unknown.
const firstBatchPops = 64

func newLane(d *shared) *lane {
	l := &lane{
		d:       d,
		batcher: fdbpq.NewBatcher(d.options.DB, d.options.Keyspace),
		started: make(chan *batch),
		timers:  newTimers(d.options.Now),
		over:    make(chan struct{}),
	}
	l.mu.lines = map[lineKey]*line{}
	l.mu.lazy.of = l

	if room := d.options.LeaseRoom; room > 0 {
		l.batcher.LimitRoom(room)
	}
	l.batcher.LimitReturned(min(d.options.MaxBatchBytes, fdbpq.MaxMessageSize))
	l.batcher.SetNow(d.options.Now)
	l.watch = newClockWatch(d.options.Now)
	l.popSize.Store(int64(d.options.MaxBatchBytes / firstBatchPops))
	l.mu.changed.L = &l.mu
	l.spare.New = func() any { return &batch{} }
	return l
}

// close makes run return when nothing is left to do.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	l.mu.changed.Signal()
	l.timers.wake()
}

// wakeRun makes run check again whether there is something to do.
func (l *lane) wakeRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.changed.Signal()
}

// doneLocked reports whether run ends, unless something is to be settled.
func (l *lane) doneLocked(ctx context.Context) bool {
	waiting := l.mu.returns.len() + l.mu.backlog.len() + l.mu.aside.len() + len(l.mu.lines)
	return l.mu.closed && l.mu.newest == nil && waiting == 0 && (l.d.holds.Load() == 0 || ctx.Err() != nil)
}

// lineLocked returns the line of a queue, nil if there is none. It is cheap while nobody
// waits in the lane.
func (l *lane) lineLocked(q *Queue) *line {
	if len(l.mu.lines) == 0 {
		return nil
	}
	return l.mu.lines[q.lineKey()]
}

// backlogsLocked returns all backlogs: the one that goes first in the next batch, and then the others.
func (l *lane) backlogsLocked() [3]*backlog {
	switch l.mu.batches % 3 {
	case 1:
		return [3]*backlog{&l.mu.returns, &l.mu.backlog, &l.mu.aside}
	case 2:
		return [3]*backlog{&l.mu.backlog, &l.mu.aside, &l.mu.returns}
	}
	return [3]*backlog{&l.mu.aside, &l.mu.backlog, &l.mu.returns}
}

// opOverhead is roughly how many bytes an operation adds to a transaction.
const opOverhead = 256

// popCost is about how many bytes a pop adds to a transaction.
func (l *lane) popCost(q *Queue) int { return l.itemSize(q) + opOverhead }

// itemSize is the expected size of an item that is popped or peeked.
func (l *lane) itemSize(q *Queue) int {
	return int(cmp.Or(q.itemSize.Load(), l.popSize.Load()))
}
