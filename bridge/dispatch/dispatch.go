// Package dispatch runs requests on queues in batches. It knows nothing of NATS: each [Request] has
// a [Replier] that answers it.
//
// # The life of a request
//
// [Dispatcher.Submit] counts a request against the load limits and appends it to the lane of its
// queue. A queue always has the same lane, so requests to one queue run in the order in which they
// were submitted. What arrives while a batch is in flight forms the next one. The lane starts it as
// one transaction (fdbpq.Batcher), and calls the Replier of each request once it is durable.
//
// # Waiting
//
// A request with a [Wait] that finds no item joins the line of its queue, and no longer counts as
// pending. The line is served in order, and nothing else that pops from the queue runs before it. A
// transaction that makes items ready serves the line too, if the two meet in the lane.
//
// A lane looks at a line when items of its queue become ready, when a lease or delay ends, and
// after [Dispatcher.Wake]. To look is to put pops for the first requests of the line into the next
// batch. Those pops are an attempt of the line, and line.attempt says what they found. Attempts to
// commit are something else: fdbpq.Batcher repeats them within one batch, and
// [Dispatcher.Conflicts] counts the failed ones. The tables in states.go have all moves of lines
// and of the requests in them.
//
// # Unconfirmed bytes
//
// An item that was popped must stay in memory until its delivery is confirmed, because it may have
// to go back. These are the unconfirmed bytes, and the caller counts them with
// [Dispatcher.AddUnconfirmed]. While there are too many, lanes set pops and leases aside: see
// Options.MaxUnconfirmed.
//
// # Failures
//
// If a batch fails, the Repliers of its requests get the error. Usually the batch has then had no
// effect. An error that wraps [ErrUnknownOutcome] means that the store did not say whether the
// batch committed. The lane then settles the batch, which puts back what its pops took, before it
// runs anything else. Requests that waited before the batch was made do not fail with it: they wait
// on.
//
// # Time
//
// A request that does not wait is answered within Options.RequestTimeout and a short grace time,
// whatever the store does: see deadlines.go. The timers of a lane answer what the store does not.
// They use the monotonic clock, but items fall due by Options.Now. So while a request waits, the
// timers compare the two clocks once a second, and look again if they have drifted apart. The
// sweeper looks at its agenda every few seconds.
//
// # Where to read
//
// Calls go down this list, with few exceptions:
//
//	counts, dispatch                      what a bridge sees
//	sweep, sweeper, retire, saver         what runs beside its requests
//	run, answer                           a batch from its start to its replies, or to its failure
//	take                                  a request from its backlog to a batch
//	alarms, deadlines                     what happens at a certain time, or too late
//	attempt, reply                        what a batch does for the lines of its queues
//	lines                                 joining, leaving and waking a line
//	lane, batch, line, waiter, states     the data of a lane
//	shared, traffic, saved, queue         what lanes have in common, and the health of the store
//	request, errors                       what goes in and out
//	timers                                the clock of a lane
package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Dispatcher runs requests. All methods are safe for concurrent use.
type Dispatcher struct {
	*shared
	lanes   []*lane
	sweeper *Sweeper
	saver   *saver
}

// New returns a Dispatcher. Requests wait until Run is called.
func New(o Options) *Dispatcher {
	d := &Dispatcher{shared: newShared(o)}
	for range o.Lanes {
		d.lanes = append(d.lanes, newLane(d.shared))
	}
	d.queues = newRegistry(o.Keyspace, d.lanes)
	d.sweeper = &Sweeper{d: d.shared, woken: make(chan struct{}, 1)}
	d.sweeper.mu.agenda = newAgenda(maxTasks)
	d.noteBatch = d.sweeper.noteBatch
	d.saver = newSaver(d.shared)
	return d
}

// Run runs requests until Close has been called and all of them are answered. When ctx ends, it
// cancels the batches in flight and fails the waiting requests. Even then it does not return before
// Close, and a request that a Replier requeues fails again; so call Close before ctx ends, or soon
// after.
func (d *Dispatcher) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, l := range d.lanes {
		running.Go(func() { l.run(ctx) })
		running.Go(l.answerBatches)
		running.Go(func() { l.runTimers(ctx) })
	}

	polls, stop := context.WithCancel(ctx)
	var polling sync.WaitGroup
	if d.options.PollEvery > 0 {
		// This finds the items of programs that write to the store and do not call Wake.
		polling.Go(func() {
			for signal.Pause(polls, d.options.PollEvery) {
				d.WakeAll()
			}
		})
	}

	polling.Go(func() {
		for signal.Pause(polls, probeEvery) {
			if d.WriteFailure() != nil {
				attempt, cancel := context.WithTimeout(polls, d.options.RequestTimeout)
				_ = d.StoreReady(attempt) // which records a success
				cancel()
			}
		}
	})

	// Lanes end by themselves after Close. Nothing is left to poll for then.
	running.Wait()
	stop()
	polling.Wait()
}

// Submit queues a request and returns at once. It copies the operations; what they point to must
// not change until the request is answered. Errors wrap ErrOverloaded if too much waits, or
// ErrUnavailable after Close. After an error, the Replier is not called.
func (d *Dispatcher) Submit(r *Request, ops []fdbpq.Op) error {
	if r.Wait != nil {
		if err := d.admitWaiter(&d.waiters); err != nil {
			return err
		}
		if d.options.Waits != nil {
			d.options.Waits()
		}
	}

	if err := d.load.admit(r.Size); err != nil {
		d.releaseWaiter(r)
		return err
	}

	l := r.Queue.lane
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.mu.closed {
		d.release(r)
		return errClosed
	}

	l.pushLocked(&l.mu.backlog, r, ops)
	if r.Lazy && !l.mu.lazy.isSet() {
		l.timers.set(&l.mu.lazy, l.timers.now()+lazyTime)
	}
	if l.enoughLocked() {
		l.mu.changed.Signal()
	}
	return nil
}

// Do runs operations on a queue in one transaction, waits, and returns a result for each. It sets
// the Queue of the operations.
//
// After an error, no operation was done. If it wraps ErrUnknownOutcome, they may have been done, as
// when ctx ends first: what a pop or lease still takes then goes to Options.RequeueLate.
func (d *Dispatcher) Do(ctx context.Context, q *Queue, ops []fdbpq.Op) ([]fdbpq.Result, error) {
	size := 0
	for i := range ops {
		ops[i].Queue = q.Target
		size += ops[i].Message.Size()
	}

	c := newCall()
	r := Request{Queue: q, Replier: c, Received: time.Now(), Size: size}
	if err := d.Submit(&r, ops); err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// Requeue is like Submit, for a request that must not be refused: an item that goes back into its
// queue. It ignores the load limits and works after Close. Such requests come first in every third
// batch, so that the memory of their items is freed soon, and last in the others. The error, which
// wraps ErrUnavailable, means that Run has ended or is about to.
func (d *Dispatcher) Requeue(r *Request, ops []fdbpq.Op) error {
	l := r.Queue.lane
	return l.requeueIn(&l.mu.returns, r, ops)
}

// AddUnconfirmed adds bytes to the unconfirmed bytes, which the caller has in memory until the
// delivery of popped items is confirmed, because the items may have to go back. A negative number
// subtracts them. q is the queue of the items, nil for other memory. Options.MaxUnconfirmed limits
// the sum.
func (d *Dispatcher) AddUnconfirmed(q *Queue, bytes int) {
	if q != nil {
		q.unconfirmed.Add(int64(bytes))
	}

	// Requests that had to wait may be able to run now.
	now, load := d.load.unconfirmed.Add(int64(bytes)), &d.load
	fell := func(to int64) bool { return now <= to && now-int64(bytes) > to }
	if load.maxUnconfirmed > 0 && (fell(load.maxUnconfirmed) || fell(load.maxUnconfirmedByAll)) {
		d.wakeLanes()
	}
}

// Wake makes the waiting requests of a queue look for items. Call it for items that did not come
// through requests to this queue: from other bridges, or dead letters. It costs next to nothing if
// nobody waits.
func (d *Dispatcher) Wake(q *Queue) { q.lane.wakeLine(q, nil) }

// WakeAll is Wake for all queues. Most have nothing, so one pop looks at first.
func (d *Dispatcher) WakeAll() {
	for _, l := range d.lanes {
		l.mu.Lock()
		for _, ln := range l.mu.lines {
			ln.speculative = ln.speculative || ln.budget == 0
			l.wakeLineLocked(ln, 1)
		}
		l.mu.Unlock()
	}
}

// Cancel ends a request that waits. Call it only after Submit has returned. The Replier gets the
// items of a batch in flight, if any, and then a Fail with ErrCancelled, unless the request ends in
// another way first. If the request has ended, Cancel does nothing.
func (d *Dispatcher) Cancel(w WaitHandle) {
	if w.wait != nil {
		w.queue.lane.cancelWait(w.wait)
	}
}

// AddCredits adds n credits for the requests of a queue that share c; a negative n takes them away.
func (d *Dispatcher) AddCredits(q *Queue, c *Credits, n int) {
	l := q.lane
	l.mu.Lock()
	defer l.mu.Unlock()

	ln := l.lineLocked(q)

	before := c.available
	c.addLocked(ln, n)
	if before <= 0 && c.available > 0 && c.parked > 0 {
		l.wakeLineLocked(ln, c.available)
	}
}

// Hold keeps Run going after Close, although everything is answered, because there may be something
// to requeue. Each Hold ends with a Release.
func (d *Dispatcher) Hold() { d.holds.Add(1) }

// Release ends a Hold.
func (d *Dispatcher) Release() {
	if d.holds.Add(-1) == 0 {
		d.wakeLanes()
	}
}

func (d *Dispatcher) wakeLanes() {
	for _, l := range d.lanes {
		l.wakeRun()
	}
}

// Close makes Submit refuse requests, fails the requests that wait for items, and lets Run return
// once everything submitted has been answered.
func (d *Dispatcher) Close() {
	for _, l := range d.lanes {
		l.close()
	}
}

// Queue returns the queue of that name, which it copies. The queue need not exist in the store.
// Errors wrap fdbpq.ErrQueueName.
func (d *Dispatcher) Queue(kind subjects.Kind, name string) (*Queue, error) {
	return d.queues.get(kind, name)
}

// Find returns the queue of that name if it is in memory, nil otherwise.
func (d *Dispatcher) Find(kind subjects.Kind, name string) *Queue {
	q, _, _ := d.queues.find(kind, name)
	return q
}

// Pending returns how many requests are queued or run, and their total Size in bytes. Requests that
// wait for items do not count.
func (d *Dispatcher) Pending() (requests, bytes int64) {
	return d.load.requests.Load(), d.load.bytes.Load()
}

// AdmitWaiter counts a request that waits outside of the lines against Limits.MaxWaiters, or
// returns ErrTooManyWaiters. ReleaseWaiter ends its count.
func (d *Dispatcher) AdmitWaiter() error { return d.admitWaiter(&d.others) }

// ReleaseWaiter ends the count of a request that AdmitWaiter has counted.
func (d *Dispatcher) ReleaseWaiter() { d.others.Add(-1) }

// Waiters returns the number of requests with a Wait that have not ended.
func (d *Dispatcher) Waiters() int { return int(d.waiters.Load()) }

// SideEffects returns how many items have been removed without a request for them, such as expired
// ones.
func (d *Dispatcher) SideEffects() (sum fdbpq.SideEffects) {
	for _, l := range d.lanes {
		sum.Add(l.batcher.SideEffects())
	}
	return sum
}

// Conflicts returns how many attempts to commit a batch have failed because of a conflict.
func (d *Dispatcher) Conflicts() (sum int64) {
	for _, l := range d.lanes {
		sum += l.batcher.Conflicts()
	}
	return sum
}

// StoreReady returns nil if the store answers reads and is not known to refuse writes. It does not
// wait for writers, so a busy store is ready. After a failed write it tries one itself, and so does
// Run every probeEvery.
func (d *Dispatcher) StoreReady(ctx context.Context) error {
	return d.health.check(ctx, d.options.DB, d.options.Keyspace)
}

// WriteFailure returns the last failure to write to the store, or nil if a probe or a push
// has succeeded since. It does not ask the store; Run does meanwhile.
func (d *Dispatcher) WriteFailure() error {
	if failed := d.health.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// Sweeper returns the sweeper. It works while its Run does.
func (d *Dispatcher) Sweeper() *Sweeper { return d.sweeper }

// OwnersChanged says that Options.Owns may give other answers than before.
func (d *Dispatcher) OwnersChanged() { d.sweeper.planPass(time.Now().Add(ownersPause)) }

// SaveTraffic stores what Traffic returns until ctx ends, and takes over what processes have stored
// that are gone. The store must be open. Call it at most once.
func (d *Dispatcher) SaveTraffic(ctx context.Context) { d.saver.run(ctx) }

// EndTraffic stores the rest, and leaves everything to other processes. Call it when nothing is
// counted any more and SaveTraffic has ended or is about to.
func (d *Dispatcher) EndTraffic(ctx context.Context) { d.saver.end(ctx) }

// Maintain removes what dead processes left in the store, calls next, and then retires unused
// queues until ctx ends. The store must be open.
func (d *Dispatcher) Maintain(ctx context.Context, next func()) {
	r := &retirer{d: d.shared, passes: listPasses}
	r.sweepReceipts(ctx)
	next()
	r.run(ctx)
}
