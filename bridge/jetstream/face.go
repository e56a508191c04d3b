// Package jetstream lets programs that were written for JetStream's pull consumers use the queues.
//
// # What it does
//
// A queue is a stream. Its subject is where pushes to the queue go, and its domain is the prefix of
// the queue's subjects. A pull is a lease that waits, and an acknowledgement ends the lease. So
// everything that holds for leases holds here: fences, old places, limits, dead letters.
//
// Every queue exists, as it does for all other requests. STREAM.INFO of an unused queue shows an
// empty stream, and STREAM.CREATE succeeds, without doing anything, if it describes the stream that
// the queue is. An emptied queue leaves the list of queues after a while, and a worker that starts
// the next day must not hear that its stream is gone. STREAM.NAMES and STREAM.LIST show the queues
// of the list.
//
// Each queue has the consumers min and max, which take items from that end; a FIFO queue has only
// min. Other consumers are records beside the settings of the queue.
//
// The face uses a leaf node connection (package leaf), because NATS lets no ordinary client send a
// message with JetStream's reply subjects.
//
// # Reading the code
//
//	run          connects, and stops
//	serve        takes messages: acknowledgements, pulls, and calls of the API by their table
//	core         what they share: running and forwarding requests, answers
//	outstanding  what consumers have outstanding
//	pull         turns a pull into requests to the dispatcher; ends.go has how pulls end
//	deliver      sends the items of a pull to its inbox
//	streams      run the calls, with consumers and records
//	calls        what all calls have in common: payloads, answers, errors
//	consumer     what the face knows of a consumer, and its cache
//	subjects     the names of domains, and the subjects of messages
package jetstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// Face is the JetStream face of a bridge. Its methods may be called by any goroutine.
type Face struct {
	*pulls
	*tasks
	forwarded string // begins the subjects of messages that other bridges forwarded
	leaf      *leaf.Conn
	cache     consumerCache

	state atomic.Pointer[leaf.State] // nil before the first attempt to connect
}

// Up to maxTasks tasks run at a time, and up to maxWaitingTasks wait.
const maxTasks, maxWaitingTasks = 16, 1000

// tasks runs calls of the API, and what else waits for the store.
type tasks struct {
	slots   chan struct{} // an element for each task that runs
	ctx     context.Context
	cancel  context.CancelFunc
	timeout time.Duration // of each

	mu struct {
		sync.Mutex
		pending int // tasks that wait or run
		ended   bool
	}
	running sync.WaitGroup
}

// later runs a task when there is a slot for it. It returns false if too many wait, or the face has
// ended.
func (t *tasks) later(run func(ctx context.Context)) bool {
	return t.runTask(maxTasks+maxWaitingTasks, run)
}

// runTask is later with another limit.
func (t *tasks) runTask(limit int, run func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.mu.ended || t.mu.pending >= limit {
		return false
	}

	t.mu.pending++
	t.running.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		defer cancel()
		t.slots <- struct{}{}
		run(ctx)
		<-t.slots

		t.mu.Lock()
		t.mu.pending--
		t.mu.Unlock()
	})
	return true
}

// end waits for the tasks. When ctx ends it cancels them. No further ones begin.
func (t *tasks) end(ctx context.Context) {
	t.mu.Lock()
	t.mu.ended = true
	t.mu.Unlock()

	defer context.AfterFunc(ctx, t.cancel)()
	t.running.Wait()
	t.cancel()
}
