// Package dispatch runs requests on queues in batches. It knows the queues that are in
// use, bounds the requests that wait, puts them together into transactions and hands
// the results to whoever answers. It knows nothing of NATS: each [Request] carries its
// [Replier].
//
// # The life of a request
//
// [Dispatcher.Submit] counts a request against the load limits and appends it to the
// lane of its queue. A queue always belongs to the same lane, so requests to one queue
// run in the order in which they were submitted. The lane takes what has
// arrived while its last batch was under way, starts it as one transaction
// (see fdbpq.Batcher) and, once that is durable, calls the Replier of each request.
//
// # Failures
//
// If a batch fails, the Replier of each of its requests gets the error instead. An error
// that wraps [ErrUnknownOutcome] means that the store did not say whether the batch was
// committed; the lane then settles the batch, which puts back what its pops took,
// before it runs anything else. With any other error nothing was done.
package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Errors of requests, besides those of packages fdbpq and kv.
var (
	// ErrOverloaded: too many requests are waiting. The request was not run.
	ErrOverloaded = errors.New("overloaded")

	// ErrUnavailable: the store did not answer in time, or the dispatcher is
	// closing. The request was not run.
	ErrUnavailable = errors.New("unavailable")

	// ErrUnknownOutcome: the store did not say whether the batch was
	// committed. A push may or may not be in the queue; what a pop would have
	// returned is put back at its place.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
)

// Options configure a Dispatcher. All fields are required.
type Options struct {
	DB       kv.Database
	Keyspace *fdbpq.Keyspace

	// Lanes is the number of batches that are put together independently of
	// each other.
	Lanes int
	// MaxBatch is the most operations in one transaction, unless a single request has more.
	MaxBatch int
	// MaxBatchBytes is about the most bytes that one batch pushes and returns. A
	// single request may exceed it.
	MaxBatchBytes int
	// MaxPending is the most requests that wait or run at one time.
	MaxPending int
	// MaxPendingBytes is the same in bytes; the request that exceeds it is still taken.
	MaxPendingBytes int
	// RequestTimeout is how long a request may wait for its batch. A batch must be
	// done when its oldest request reaches this age, but gets at least half of it.
	RequestTimeout time.Duration

	// Warn logs trouble with the store. It may drop messages.
	Warn func(message string, args ...any)
	// BatchDone is called with the number of operations of each batch that
	// succeeded.
	BatchDone func(operations int)
}

// Dispatcher runs requests. All methods are safe for concurrent use.
type Dispatcher struct {
	options Options
	health  health
	load    load
	queues  *registry
	retirer *Retirer
	lanes   []*lane
	held    atomic.Bool
}

// New returns a Dispatcher. Requests wait until Run is called.
func New(o Options) *Dispatcher {
	d := &Dispatcher{
		options: o,
		load:    load{maxRequests: int64(o.MaxPending), maxBytes: int64(o.MaxPendingBytes)},
	}
	for range o.Lanes {
		d.lanes = append(d.lanes, newLane(d))
	}
	d.queues = newRegistry(o.Keyspace, d.lanes)
	d.retirer = d.NewRetirer(true)
	return d
}

// Run runs requests until Close was called and all have been answered. When ctx ends it
// gives up the batches under way and fails the requests that wait.
func (d *Dispatcher) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, l := range d.lanes {
		running.Go(func() { l.run(ctx) })
		running.Go(l.answer)
	}
	running.Wait()
}

// Submit takes a request with its operations, which it copies; what they refer to must
// not change until the request is answered. Errors: ErrOverloaded, and ErrUnavailable
// after Close. The Replier is not called then.
func (d *Dispatcher) Submit(r *Request, ops []fdbpq.Op) error { return r.Queue.lane.submit(r, ops) }

// Requeue is Submit regardless of the load, and after Close as well, for what must not
// be refused: an item that goes back into its queue. It returns ErrUnavailable only
// once Run has nothing more to do.
func (d *Dispatcher) Requeue(r *Request, ops []fdbpq.Op) error { return r.Queue.lane.requeue(r, ops) }

// Hold, while it is on, keeps Run going after Close although all is answered, because
// there may still be something to requeue.
func (d *Dispatcher) Hold(on bool) {
	if d.held.Swap(on) == on {
		return
	}
	for _, l := range d.lanes {
		l.wake()
	}
}

// Close ends Submit, and lets Run return when all that was submitted is answered.
func (d *Dispatcher) Close() {
	for _, l := range d.lanes {
		l.close()
	}
}

// Pending returns the number and the bytes of the requests that wait or run.
func (d *Dispatcher) Pending() (requests, bytes int64) {
	return d.load.requests.Load(), d.load.bytes.Load()
}
