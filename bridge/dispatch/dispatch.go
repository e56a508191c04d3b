// Package dispatch runs requests on queues in batches, and knows nothing of NATS: each [Request]
// carries its own [Replier].
//
// # The life of a request
//
// [Dispatcher.Submit] counts a request against the load limits and appends it to the lane of its
// queue, which is always the same, so requests to one queue run in the order in which they were
// submitted. Whatever arrived while the previous batch was in flight forms the next one, which the
// lane starts as one transaction (see fdbpq.Batcher). Once that is durable, the lane calls the
// Replier of each request.
//
// # Waiting
//
// A request with a [Wait] that finds no item takes its place in the line of its queue, and
// counts as pending no longer. Those in line are served in the order in which they came, by
// the transaction that makes items ready if they meet in the lane. Nothing else that pops
// from the queue runs before them. A lane looks at a line when items of its queue become
// ready, when a lease or delay is over, and after [Dispatcher.Wake]. The tables in states.go have
// all moves of lines and of those who wait.
//
// # Failures
//
// If a batch fails, the Replier of each of its requests gets the error instead. An
// error that wraps [ErrUnknownOutcome] means that the store did not say whether the
// batch was committed; the lane then settles the batch, which puts back what its pops
// took, before it runs anything else. After any other error the batch has had no
// effect. Requests that waited before the batch was made do not fail with it: they wait on.
//
// # Time
//
// The timers of a lane answer what is not answered within Options.RequestTimeout. Timers go by the
// monotonic clock. Items fall due by Options.Now, so while somebody waits they compare the two once a
// second, and look again when they have parted. The sweeper looks at its agenda every few seconds.
//
// # Where to read
//
// Calls go down this list, with few exceptions:
//
//	dispatch, sweep, sweeper, retire      what a bridge sees, and what runs beside its requests
//	run, take, answer                     a request from Submit through its batch to its reply
//	failure                               what becomes of a batch that failed
//	alarms, deadlines                     what happens at a certain time, and what has waited too long
//	attempt, reply                        what a batch does for the lines of its queues
//	lines                                 who joins and leaves a line, and when it is looked at again
//	lane, batch, line, waiter, states     the data of a lane
//	shared, queue, timers, chain, health  what lanes are made of
//	request, call, errors                 what goes in and out
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Dispatcher runs requests. All methods are safe for concurrent use.
type Dispatcher struct {
	*shared
	lanes   []*lane
	poller  *fdbpq.Batcher // reads what poll looks at
	sweeper *Sweeper
}

// New returns a Dispatcher. Requests wait until Run is called.
func New(o Options) *Dispatcher {
	d := &Dispatcher{shared: newShared(o)}
	for range o.Lanes {
		d.lanes = append(d.lanes, newLane(d.shared))
	}
	d.queues = newRegistry(o.Keyspace, d.lanes)
	d.sweeper = newSweeper(d.shared)
	d.noteBatch = d.sweeper.noteBatch
	d.poller = fdbpq.NewBatcher(o.DB, o.Keyspace)
	d.poller.SetNow(d.options.Now)
	return d
}

// Run runs requests until Close has been called and all of them are answered. When ctx
// ends, it cancels the batches in flight and fails the waiting requests. It does not
// return before Close even then, and fails again and again what a Replier requeues; so
// call Close before ctx ends, or soon after.
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
		polling.Go(func() { d.poll(polls) })
	}
	running.Wait()
	stop()
	polling.Wait()
}

// poll looks every PollEvery at queues where requests wait, until ctx ends, for the sake of programs
// that write to the store and call no Wake.
func (d *Dispatcher) poll(ctx context.Context) {
	for pause(ctx, d.options.PollEvery) {
		for _, l := range d.lanes {
			d.pollLane(ctx, l)
		}
	}
}

// pollLane looks at the queues of one lane. Errors do not matter: the next round comes soon.
func (d *Dispatcher) pollLane(ctx context.Context, l *lane) {
	for page := range slices.Chunk(l.takeQuiet(), d.options.MaxBatch) {
		ops := make([]fdbpq.Op, len(page))
		for i, q := range page {
			ops[i] = fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q.Target}
		}

		attempt, cancel := context.WithTimeout(ctx, d.options.RequestTimeout)
		pending := d.poller.Start(attempt, ops)
		results, err := pending.Wait()
		cancel()
		d.sweeper.noteAhead(pending.Ahead())
		d.sweeper.noteBehind(pending.Behind())
		wakeQueues(d.shared, d.filledQueues(pending), nil)
		if err != nil {
			return
		}

		for i, q := range page {
			if err := results[i].Err; !errors.Is(err, fdbpq.ErrEmpty) || hasNoRoom(err) {
				q.lane.wakeLine(q)
			}
		}
	}
}

// Submit queues a request and copies its operations; what they point to must not change
// until the request is answered. It returns ErrOverloaded, or ErrUnavailable after
// Close, and then does not call the Replier.
func (d *Dispatcher) Submit(r *Request, ops []fdbpq.Op) error { return r.Queue.lane.submit(r, ops) }

// Do runs operations on a queue in one transaction and returns their results, for callers that can
// wait. It sets the Queue of the operations. The error says that none was done or, if it wraps
// ErrUnknownOutcome or kv.ErrCommitUnknown, that this is unknown: also if ctx ends first. What a
// pop or lease takes after that goes to Options.RequeueLate.
func (d *Dispatcher) Do(ctx context.Context, q *Queue, ops []fdbpq.Op) ([]fdbpq.Result, error) {
	size := 0
	for i := range ops {
		ops[i].Queue = q.Target
		size += sizeOf(&ops[i].Message)
	}

	c := newCall()
	if err := d.Submit(&Request{Queue: q, Replier: c, Received: time.Now(), Size: size}, ops); err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// Requeue is like Submit but ignores the load limits and works after Close too, for a request that
// must not be refused: an item that goes back into its queue. Such requests have one batch in three
// and have what others leave of the rest, because items that wait to go back take memory. It
// returns ErrUnavailable only once Run has nothing more to do.
func (d *Dispatcher) Requeue(r *Request, ops []fdbpq.Op) error {
	l := r.Queue.lane
	return l.requeueIn(&l.mu.returns, r, ops)
}

// Keep counts bytes of items of a queue that were popped and may still have to go back, which are held
// in memory until then; a negative number counts them no longer. q is nil for what belongs to no queue.
// See Options.MaxKept.
func (d *Dispatcher) Keep(q *Queue, bytes int) {
	if q != nil {
		q.kept.Add(int64(bytes))
	}
	if d.load.keep(bytes) {
		d.wakeLanes()
	}
}

// Wake has the waiters of a queue look for items, because there may be some that did not
// come through this queue's requests: those of other bridges, or dead letters. It costs next
// to nothing if nobody waits.
func (d *Dispatcher) Wake(q *Queue) { q.lane.wakeLine(q) }

// WakeAll is Wake for all queues.
func (d *Dispatcher) WakeAll() {
	for _, l := range d.lanes {
		l.wakeAllLines()
	}
}

// Cancel ends a request that waits, because nobody wants what it waits for. It may be called once
// Submit has returned. The request's Replier gets a Fail with ErrCancelled, after the items of a
// batch in flight, unless the request ends in another way before. If it has ended, nothing happens.
func (d *Dispatcher) Cancel(w WaitHandle) {
	if w.wait != nil {
		w.queue.lane.cancelWait(w.wait)
	}
}

// AddCredits adds credits of requests of a queue, or takes them away if n is negative.
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

// Hold keeps Run going after Close although all is answered, because there may still be
// something to requeue, until Release is called as often.
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

// Close makes Submit refuse requests, fails those that wait for items, and lets Run return
// once everything submitted has been answered.
func (d *Dispatcher) Close() {
	for _, l := range d.lanes {
		l.close()
	}
}

// Queue returns the queue of that name, which it copies. Errors wrap
// fdbpq.ErrQueueName.
func (d *Dispatcher) Queue(kind subjects.Kind, name string) (*Queue, error) {
	return d.queues.get(kind, name)
}

// Find returns the queue of that name if it is in memory, and otherwise nil.
func (d *Dispatcher) Find(kind subjects.Kind, name string) *Queue {
	q, _, _ := d.queues.find(kind, name)
	return q
}

// Pending returns the number and the total size of the requests that wait or run.
func (d *Dispatcher) Pending() (requests, bytes int64) {
	return d.load.requests.Load(), d.load.bytes.Load()
}

// Waiters returns the number of requests with a Wait that have not ended.
func (d *Dispatcher) Waiters() int { return int(d.waiters.Load()) }

// Removed returns how many items were removed so far although no request took or removed them.
func (d *Dispatcher) Removed() fdbpq.Removed {
	sum := d.poller.Removed()
	for _, l := range d.lanes {
		sum.Add(l.batcher.Removed())
	}
	return sum
}

// Conflicts returns how many attempts at batches failed so far because of a conflict.
func (d *Dispatcher) Conflicts() int64 {
	sum := int64(0)
	for _, l := range d.lanes {
		sum += l.batcher.Conflicts()
	}
	return sum
}

// Traffic returns how many items came into and left the queues in use by requests, of up to n of the
// queues where it was most.
func (d *Dispatcher) Traffic(n int) []subjects.QueueTraffic {
	all := []subjects.QueueTraffic{}
	for i := range d.queues.shards {
		s := &d.queues.shards[i]
		s.RLock()
		for _, q := range s.queues {
			if in, out := q.in.Load(), q.out.Load(); in+out > 0 {
				all = append(all, subjects.QueueTraffic{Kind: q.Kind.Short(), Queue: q.Name, In: in, Out: out})
			}
		}
		s.RUnlock()
	}

	slices.SortFunc(all, func(a, b subjects.QueueTraffic) int {
		return cmp.Or(cmp.Compare(b.In+b.Out, a.In+a.Out), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Queue, b.Queue))
	})
	return all[:min(n, len(all))]
}

// StoreReady returns nil if the store answers reads and, as far as is known, accepts
// writes. It does not wait for writers, so a busy store is ready. After a failed write
// it tries one itself.
func (d *Dispatcher) StoreReady(ctx context.Context) error {
	return d.health.check(ctx, d.options.DB, d.options.Keyspace)
}

// WriteFailure returns the last failure to write to the store, nil if a probe has succeeded since. It
// does not ask the store.
func (d *Dispatcher) WriteFailure() error {
	if failed := d.health.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// Sweeper returns the sweeper, which works while its Run does.
func (d *Dispatcher) Sweeper() *Sweeper { return d.sweeper }

// OwnersChanged says that Options.Owns has changed.
func (d *Dispatcher) OwnersChanged() { d.sweeper.planPass(time.Now().Add(ownersPause)) }

// Maintain removes what dead processes left in the store and retires unused queues,
// until ctx ends. It calls next between the two. The store must be open.
func (d *Dispatcher) Maintain(ctx context.Context, next func()) {
	r := &retirer{d: d.shared, passes: listPasses}
	r.sweepReceipts(ctx)
	next()
	r.run(ctx)
}
