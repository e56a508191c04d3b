package dispatch

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// lane runs the requests of its queues in batches. What arrives while one batch is in flight forms
// the next, so an idle lane adds no delay, and a busy one shares each sync to disk among hundreds
// of requests.
//
// Three goroutines serve a lane. run builds batches and starts them. answerBatches waits until they
// are durable and calls the Repliers. runTimers answers requests whose time is up, and wakes lines.
//
// Two batches may be in flight at once if the engine pipelines, or if it is not serial and both
// only push. The second starts once it is as large as the first.
type lane struct {
	d       *shared
	batcher *fdbpq.Batcher
	started chan *batch  // run to answerBatches; unbuffered, which bounds the batches in flight
	popSize atomic.Int64 // expected bytes of an item of an unknown queue, see observeResults
	timers  timers
	ended   chan struct{} // closed when run has returned

	// refused are requests found too late while a batch was put together. Only run uses it.
	refused []refusal

	// calling is held while Repliers are called, for requests that wait or have run, so calls for
	// one queue come one at a time. Lock calling before mu, never after.
	calling       sync.Mutex
	notifications int64 // calls of notifyFilled so far; guarded by calling

	mu struct {
		sync.Mutex
		changed sync.Cond // signalled when something that run waits for may have changed

		// Requests that no batch has taken yet.
		returns backlog // items that go back into queues
		aside   backlog // requests of queues with much of a batch, or too much unconfirmed
		backlog backlog // all other requests

		closed  bool
		ended   bool  // run accepts nothing more
		overdue alarm // for the first of all requests whose time will be up
		lazy    alarm // for the first lazy request in the backlog
		lazyDue bool  // lazy requests have waited long enough

		// Batches, from takeBatch until they are answered.
		batches   int64            // taken so far
		clock     int64            // the last number of a look or an event, see line
		inFlight  []*batch         // all
		newest    *batch           // the last one started, nil once it is answered
		silent    int              // those with pushes that have no reply
		unsettled bool             // the outcome of a batch is unknown
		doubtful  []*Queue         // queues of the batches whose outcome is unknown
		ending    []fdbpq.QueueJob // jobs that those batches may have ended

		lines map[fdbpq.QueueName]*line
		ready linkedList[line, *line] // lines that the next batch looks at

		cancelled []*waiter // they left their line; runTimers ends them
	}
	popBuffer []fdbpq.Op // reused by addPopsLocked; guarded by mu
	spare     sync.Pool  // of *batch

	// For tests: called with the lock held. Usually nil.
	waiterMoved func(from, to waiterState)
	lineMoved   func(from, to lineState)
}

// firstBatchPops limits the pops in a batch while the size of the items is still unknown.
const firstBatchPops = 64

// knownBatches is how many times the largest batch the Batcher takes for what it knows: with little
// memory batches are smaller as well.
const knownBatches = 8

func newLane(d *shared) *lane {
	l := &lane{
		d:       d,
		batcher: fdbpq.NewBatcher(d.options.DB, d.options.Keyspace),
		started: make(chan *batch),
		ended:   make(chan struct{}),
		timers: timers{
			epoch: time.Now(), woken: make(chan struct{}, 1), storeNow: d.options.Now,
		},
	}
	l.timers.clocksParted()
	l.mu.lines = map[fdbpq.QueueName]*line{}
	l.mu.lazy.of = l

	if budget := d.options.LeaseRoom; budget > 0 {
		l.batcher.LimitMoved(budget)
	}
	l.batcher.LimitReturned(min(d.options.MaxBatchBytes, fdbpq.MaxMessageSize))
	l.batcher.LimitCache(knownBatches * d.options.MaxBatchBytes)
	l.batcher.SetNow(d.options.Now)

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

// doneLocked reports whether run ends once every outcome is settled.
func (l *lane) doneLocked(ctx context.Context) bool {
	if l.d.holds.Load() > 0 && ctx.Err() == nil {
		return false
	}
	waiting := l.mu.returns.len() + l.mu.backlog.len() + l.mu.aside.len() + len(l.mu.lines)
	return l.mu.closed && l.mu.newest == nil && waiting == 0
}

// lineLocked returns the line of a queue, nil if there is none. It is cheap while nobody waits in
// the lane.
func (l *lane) lineLocked(q *Queue) *line {
	if len(l.mu.lines) == 0 {
		return nil
	}
	return l.mu.lines[NameOf(q.Kind, q.Name)]
}

// backlogsLocked returns the backlogs in the order in which the next batch takes from them.
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

// tickLocked returns the number of a look at lines, of an event that concerns one, or of a waiter
// that joins one. The first is 1.
func (l *lane) tickLocked() int64 {
	l.mu.clock++
	return l.mu.clock
}

// popCost estimates how many bytes a pop adds to a transaction.
func (l *lane) popCost(q *Queue) int { return l.itemSize(q) + opOverhead }

// itemSize is the expected size of an item that is popped or peeked, in bytes.
func (l *lane) itemSize(q *Queue) int {
	return int(cmp.Or(q.itemSize.Load(), l.popSize.Load()))
}
