package dispatch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// shared is what the lanes of a Dispatcher have in common with each other and with those that use
// them.
type shared struct {
	options Options
	health  health
	load    load
	queues  *registry

	// The Sweeper notes what batches say of what falls due: those of requests, and those of the
	// poller.
	noteBatch, noteLook func(p *fdbpq.Pending)

	holds   atomic.Int64 // see Dispatcher.Hold
	waiters atomic.Int64 // requests with a Wait that have not ended
}

// newShared returns a shared without queues.
func newShared(o Options) *shared {
	return &shared{
		options: o,
		load: load{
			maxRequests: int64(o.MaxPending), maxBytes: int64(o.MaxPendingBytes),
			maxKept: int64(o.MaxKept), maxKeptByAll: int64(o.MaxKept) + int64(2*o.Lanes*o.MaxBatchBytes),
		},
	}
}

// now is the time by which items fall due.
func (d *shared) now() time.Time {
	if d.options.Now != nil {
		return d.options.Now()
	}
	return time.Now()
}

// releaseWaiter counts a request that has ended as a waiter no longer, if it was one.
func (d *shared) releaseWaiter(r *Request) {
	if r.Wait != nil {
		d.waiters.Add(-1)
	}
}

// release counts a request that has ended no longer.
func (d *shared) release(r *Request) {
	d.load.release(1, r.Size)
	d.releaseWaiter(r)
}

// queue returns the queue of that name.
func (d *shared) queue(name fdbpq.QueueName) (*Queue, error) {
	return d.queues.get(kindOf(name), name.Name)
}

// filledQueues returns the queues that a batch has filled without an operation that does.
func (d *shared) filledQueues(p *fdbpq.Pending) (queues []*Queue) {
	for _, name := range p.Filled() {
		q, err := d.queue(name)
		if err == nil && !slices.Contains(queues, q) { // else not a name that a request can have
			queues = append(queues, q)
		}
	}
	return queues
}
