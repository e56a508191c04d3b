package dispatch

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Options configure a Dispatcher. All fields are required, except as stated.
type Options struct {
	DB       kv.Database
	Keyspace *fdbpq.Keyspace
	// Now is the clock by which leases end and items fall due; nil means time.Now.
	Now func() time.Time

	// Lanes is the number of lanes, each of which builds batches independently of the
	// others.
	Lanes int
	// MaxBatch limits the operations in one transaction; a single request may exceed
	// it.
	MaxBatch int
	// MaxBatchBytes limits, approximately, the bytes that one batch pushes and those of the
	// items that it returns. A single push or item may exceed it.
	MaxBatchBytes int
	// LeaseRoom is for fdbpq.Batcher.LimitRoom; 0 means its default.
	LeaseRoom int
	// MaxPending limits the requests that wait or run at one time.
	MaxPending int
	// MaxPendingBytes is the same limit in bytes. The request that crosses it is still
	// accepted.
	MaxPendingBytes int
	// MaxKept is how many bytes Repliers may keep, see Dispatcher.Keep, before pops and leases are
	// set aside: until it is less again, or their time is up. Queues of which little is kept may
	// exceed it by as much as the batches in flight may: two of each lane. 0 is no limit.
	MaxKept int
	// MaxWaiters limits the requests with a Wait, from Submit until they end.
	MaxWaiters int
	// PollEvery is how often queues with waiters are looked at, for items of programs that
	// call no Wake. 0 never looks, which is right if only this Dispatcher uses the store.
	PollEvery time.Duration
	// RequestTimeout is how long a request takes at most that does not wait for items, but for a
	// twentieth of it or 250 ms, whichever is less. A request whose batch has not begun after three
	// quarters of the time has not run, so a batch gets at least a quarter.
	RequestTimeout time.Duration

	// Warn logs problems with the store. It may drop messages.
	Warn func(message string, args ...any)
	// BatchDone is called with the number of operations of each batch that
	// succeeded.
	BatchDone func(operations int)

	// RequeueLate returns an item that a pop or lease took although its request had been answered,
	// because the batch took longer than RequestTimeout. The result is the callee's, which must be
	// quick. If RequeueLate is nil, such a request is answered when its batch ends, however late.
	RequeueLate func(q *Queue, kind fdbpq.OpKind, result *fdbpq.Result)

	// Owns, unless nil, reports whether this Dispatcher is to sweep a queue, because no other that
	// uses the store is: see Sweeper. Call Dispatcher.OwnersChanged when that changes.
	Owns func(kind subjects.Kind, name string) bool
	// Waiting, unless nil, is called when the first request begins to wait for items of a
	// queue, and when the last one has ended. Calls for one queue come one at a time. Items
	// that came before the call are found without help: whoever listens elsewhere for new
	// ones, in order to call Wake, calls it once more when listening has begun.
	Waiting func(q *Queue, waiting bool)
	// Filled, unless nil, is called when a durable batch has made items of a queue available
	// to pops, or has them fall due later: once for each batch and queue. It may be called
	// without need, and must be quick.
	Filled func(q *Queue)
}
