package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Limits limit what a Dispatcher does at a time.
type Limits struct {
	// Lanes is how many batches are built independently of each other, at most 1024. A queue always
	// belongs to the same lane. More than one lane is of no use on an engine with a single writer.
	Lanes int
	// MaxBatch is the maximum number of operations in one transaction, 1 to 65536. A single request
	// may exceed it.
	MaxBatch int
	// MaxBatchBytes limits, approximately, the bytes that one batch pushes, and the bytes of the
	// items that it returns. A single push or item may exceed it. At most 8,000,000, which leaves
	// room for keys in a transaction of 10,000,000 bytes.
	MaxBatchBytes int
	// LeaseRoom is how many bytes the leases of one transaction may move, see
	// fdbpq.Batcher.LimitMoved. 0 is the default and maximum, fdbpq.MaxMessageSize. Tests lower it.
	LeaseRoom int
	// MaxPending is the maximum number of requests that are queued or run at one time, at most
	// 2^30.
	MaxPending int
	// MaxPendingBytes is the same limit in bytes of payloads and headers, at most 1 TiB. The
	// request that crosses it is still accepted.
	MaxPendingBytes int
	// MaxWaiters is the maximum number of requests with a Wait, from Submit until they end, and of
	// others that wait (Dispatcher.AdmitWaiter), together at most 2^30. While they wait they are
	// not pending.
	MaxWaiters int
	// RequestTimeout is the time limit of a request that does not wait for items, 1ms to 24h. An
	// answer may exceed it by a twentieth, but by at most 250 ms. A request fails without being run
	// if its batch has not begun after three quarters of the time, so a batch gets at least a
	// quarter.
	RequestTimeout time.Duration
}

// Options configure a Dispatcher. All fields are required, except as stated.
type Options struct {
	DB       kv.Database
	Keyspace *fdbpq.Keyspace
	// Now is the clock by which leases end and items fall due; the default is time.Now.
	Now func() time.Time

	Limits

	// ID names this process among those that share the store, and Member reports whether another
	// one is there, as far as this one knows. Both are only for Dispatcher.SaveTraffic.
	ID     string
	Member func(id string) bool

	// MaxUnconfirmed limits the unconfirmed bytes, see Dispatcher.AddUnconfirmed. Above it, pops
	// and leases are set aside until there are fewer, or until their time is up. A queue whose own
	// unconfirmed bytes are at most a sixteenth of MaxUnconfirmed still gives items, until all of
	// them exceed MaxUnconfirmed plus the MaxBatchBytes of all batches that may be in flight, two
	// for each lane. 0 is no limit.
	MaxUnconfirmed int
	// PollEvery is how often the Dispatcher calls WakeAll, for items of programs that do not call
	// Wake. 0 is never, which is right if only this Dispatcher uses the store.
	PollEvery time.Duration

	// MetricQueues is how many queues Dispatcher.Counted names.
	MetricQueues int

	// Warn logs problems with the store. It may drop messages.
	Warn func(message string, args ...any)
	// BatchDone is called with the number of operations of each batch that succeeded.
	BatchDone func(operations int)
	// JobRan, unless nil, is called for each job that is done and kept, with how long its last
	// lease lasted, if that is known. It must be quick.
	JobRan func(took time.Duration)

	// RequeueLate puts back an item that a pop or lease took although its request had been
	// answered, because the batch took longer than RequestTimeout. It owns the result, and must be
	// quick. The bridge sets Outbox.Return, in newDispatcher (bridge/run.go).
	RequeueLate func(q *Queue, kind fdbpq.OpKind, result *fdbpq.Result)

	// Owns decides only which Dispatcher, of all that use the store, sweeps the queues that are
	// found in the list: see Sweeper. It has no effect on requests. The default is to sweep all
	// queues. Call Dispatcher.OwnersChanged when its answers change.
	Owns func(kind subjects.Kind, name string) bool
	// Source, unless nil, is called for a queue that has a source, even if another Dispatcher owns
	// it: when a pass of the Sweeper comes by, and with changed when a batch has changed settings,
	// and so may have set or removed the source. It must be quick.
	Source func(queue fdbpq.QueueName, changed bool)
	// Waits, unless nil, is called for each request with a Wait. Its items may come without a
	// request of this Dispatcher, so the callee must see that Wake is called. It must be quick. The
	// bridge sets Router.Waits of package peers, in newDispatcher (bridge/run.go).
	Waits func()
	// Ended, unless nil, is called with the jobs that a durable batch has ended, or may have: see
	// fdbpq.Pending.Ended. Of a batch of unknown outcome they are told once it is settled. It must
	// be quick.
	Ended func(jobs []fdbpq.QueueJob)
	// Filled, unless nil, is called for each batch and queue when a durable batch has made items of
	// the queue available to pops, or has them fall due later. It may also be called without need.
	// It must be quick. The bridge sets Router.Filled, in the same place.
	Filled func(q *Queue)
}

// shared is what the lanes, the Sweeper and the other parts of a Dispatcher have in common.
type shared struct {
	options Options
	health  health
	load    load
	queues  *registry
	traffic *traffic

	// noteBatch tells the Sweeper what falls due after a batch.
	noteBatch func(p *fdbpq.Pending)

	holds   atomic.Int64 // see Dispatcher.Hold
	waiters atomic.Int64 // requests with a Wait that have not ended
	others  atomic.Int64 // see Dispatcher.AdmitWaiter
}

// newShared returns a shared without queues.
func newShared(o Options) *shared {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Owns == nil {
		o.Owns = func(subjects.Kind, string) bool { return true }
	}

	if o.JobRan == nil {
		o.JobRan = func(time.Duration) {}
	}

	inFlight := 2 * o.Lanes * o.MaxBatchBytes
	return &shared{
		options: o,
		traffic: newTraffic(o.Now(), o.MetricQueues),
		load: load{
			maxRequests: int64(o.MaxPending), maxBytes: int64(o.MaxPendingBytes),
			maxUnconfirmed:      int64(o.MaxUnconfirmed),
			maxUnconfirmedByAll: int64(o.MaxUnconfirmed + inFlight),
		},
	}
}

// admitWaiter counts a request that waits among waiters or others, or returns ErrTooManyWaiters.
func (d *shared) admitWaiter(among *atomic.Int64) error {
	among.Add(1)
	if d.waiters.Load()+d.others.Load() > int64(d.options.MaxWaiters) {
		among.Add(-1)
		return ErrTooManyWaiters
	}
	return nil
}

// tellEnded tells of jobs that have ended.
func (d *shared) tellEnded(jobs []fdbpq.QueueJob) {
	if len(jobs) > 0 && d.options.Ended != nil {
		d.options.Ended(jobs)
	}
}

// releaseWaiter ends the count of a request against MaxWaiters, if it has a Wait.
func (d *shared) releaseWaiter(r *Request) {
	if r.Wait != nil {
		d.waiters.Add(-1)
	}
}

// release ends the count of a request against all limits.
func (d *shared) release(r *Request) {
	d.load.release(1, r.Size)
	d.releaseWaiter(r)
}

// queue returns the queue of that name, as Dispatcher.Queue does.
func (d *shared) queue(name fdbpq.QueueName) (*Queue, error) {
	return d.queues.get(KindOf(name), name.Name)
}

// target is like queue, without adding the queue to those in use.
func (d *shared) target(name fdbpq.QueueName) (fdbpq.Target, error) {
	return TargetOf(d.options.Keyspace, KindOf(name), name.Name)
}

// listPage is how many names of a list one transaction reads.
const listPage = 200

// list returns the next queues of a list in the store.
func (d *shared) list(ctx context.Context, fifo bool, after string) ([]fdbpq.QueueName, error) {
	read := d.options.Keyspace.PriorityQueues
	if fifo {
		read = d.options.Keyspace.Queues
	}
	names, err := kv.ReadTransact(ctx, d.options.DB, func(r kv.Reader) ([]string, error) {
		return read(r, after, listPage).Get()
	})

	var queues []fdbpq.QueueName
	for _, name := range names {
		queues = append(queues, fdbpq.QueueName{FIFO: fifo, Name: name})
	}
	return queues, err
}

// filledQueues returns the queues that a batch has filled with items that were due, not by an
// operation.
func (d *shared) filledQueues(p *fdbpq.Pending) (queues []*Queue) {
	for _, name := range p.Filled() {
		q, err := d.queue(name)
		if err == nil && !slices.Contains(queues, q) { // no request can use a name that fails
			queues = append(queues, q)
		}
	}

	return queues
}

// requeueLate puts back what a batch took for a request that had been answered before.
func (d *shared) requeueLate(q *Queue, ops []fdbpq.Op, results []fdbpq.Result) {
	for i := range ops {
		if kind := ops[i].Kind; results[i].Err == nil && kind.Has(fdbpq.TakesItem) {
			d.options.RequeueLate(q, kind, &results[i])
		}
	}
}

// load counts the requests that wait or run in all lanes.
type load struct {
	requests, bytes       atomic.Int64
	maxRequests, maxBytes int64

	unconfirmed         atomic.Int64 // bytes, see Dispatcher.AddUnconfirmed
	maxUnconfirmed      int64        // above it, only queues with few give items; 0 is no limit
	maxUnconfirmedByAll int64        // above it, no queue gives items
}

// smallShare is a divisor: while all queues together exceed MaxUnconfirmed, a queue still gives
// items if its unconfirmed bytes are at most MaxUnconfirmed/smallShare.
const smallShare = 16

// admit counts a request, or returns ErrTooManyRequests or ErrTooManyBytes.
func (l *load) admit(size int) error {
	if l.requests.Add(1) > l.maxRequests {
		l.requests.Add(-1)
		return ErrTooManyRequests
	}
	if l.bytes.Add(int64(size))-int64(size) > l.maxBytes {
		l.release(1, size)
		return ErrTooManyBytes
	}

	return nil
}

func (l *load) release(requests, bytes int) {
	l.requests.Add(int64(-requests))
	l.bytes.Add(int64(-bytes))
}

// tooMuchUnconfirmed reports whether lanes must not take more items of a queue for now.
func (l *load) tooMuchUnconfirmed(q *Queue) bool {
	bytes := l.unconfirmed.Load()
	if l.maxUnconfirmed == 0 || bytes <= l.maxUnconfirmed {
		return false
	}
	return bytes > l.maxUnconfirmedByAll || q.unconfirmed.Load() > l.maxUnconfirmed/smallShare
}

// mayTake reports whether lanes may take items at all: for requests that were set aside, or for
// others.
func (l *load) mayTake(aside bool) bool {
	most := l.maxUnconfirmedByAll
	if aside {
		most = l.maxUnconfirmed
	}
	return l.maxUnconfirmed == 0 || l.unconfirmed.Load() <= most
}

// probeEvery is the pause between the probes of Run after a write has failed. They make a bridge
// ready again that gets no requests.
const probeEvery = 5 * time.Second

// health tracks whether the store accepts writes. It assumes so until a batch fails because of the
// store. From then on only a push or a probe that succeeds restores it: a pop proves less, because
// a nearly full disk accepts pops and refuses pushes. Without a failure it writes nothing.
type health struct {
	failed  atomic.Pointer[error] // the last failure since the last successful probe or push
	probing sync.Mutex

	refusesPushes atomic.Bool // as far as the last batch with pushes showed
}

// noteFailure records the error of a batch with writes, if it failed because of the store, and not
// because of a conflict or a shutdown.
func (h *health) noteFailure(err error) {
	causes := []error{
		kv.ErrUnavailable, kv.ErrCorrupt, kv.ErrCommitUnknown, kv.ErrClosed,
		context.DeadlineExceeded,
	}
	blames := func(cause error) bool { return errors.Is(err, cause) }
	if slices.ContainsFunc(causes, blames) {
		h.failed.Store(&err)
	}
}

// notePushes records the results of a batch with pushes. One that was stored proves as much as a
// probe does.
func (h *health) notePushes(ops []fdbpq.Op, results []fdbpq.Result) {
	if h.refusesPushes.Load() {
		h.refusesPushes.Store(false)
	}

	for i := 0; i < len(ops) && h.failed.Load() != nil; i++ {
		if ops[i].Kind == fdbpq.OpPush && results[i].Err == nil && !results[i].Duplicate {
			h.failed.Store(nil)
		}
	}
}

// check is Dispatcher.StoreReady.
func (h *health) check(ctx context.Context, db kv.Database, keyspace *fdbpq.Keyspace) error {
	if err := db.Check(); errors.Is(err, kv.ErrUnavailable) {
		h.noteFailure(err) // the probe may bring it back
	}

	err := kv.View(ctx, db, func(r kv.Reader) error {
		_, err := keyspace.PriorityQueues(r, "", 1).Get()
		return err
	})
	if err != nil {
		return err
	}

	if err := h.probe(ctx, db, keyspace); err != nil {
		return fmt.Errorf("it takes no writes: %w", err)
	}
	return db.Check()
}

// probe writes to the store if the last write failed.
func (h *health) probe(ctx context.Context, db kv.Database, k *fdbpq.Keyspace) error {
	failed := h.failed.Load()
	if failed == nil {
		return nil
	}

	if !h.probing.TryLock() {
		return *failed // one probe at a time is enough
	}

	defer h.probing.Unlock()

	if err := fdbpq.Probe(ctx, db, k); err != nil {
		return err
	}

	h.failed.CompareAndSwap(failed, nil) // unless another write failed meanwhile
	return nil
}
