package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Worker does the jobs of a queue, or of several: see [NewWorker]. It leases one job after the
// other, waits while there is none, and survives restarts of bridges and NATS servers. Each job is
// done at least once, and by one worker at a time as long as that worker extends its lease in time.
//
// The connection should be one of [Connect], or have its options. Otherwise the NATS client closes
// it after two minutes without a server, or at the second time that the server refuses the login,
// and Run returns; and it notices after six minutes, not one, that the machine of the server is
// gone.
//
// # Requests
//
// A busy worker makes one request for each job: it acknowledges a job and leases the next. With
// Concurrency, jobs that end while two such requests are under way share the next one, which
// acknowledges them together and leases as many. No job is leased before a loop is free to do it,
// so the order is strict.
//
// A process that is frozen for longer than its leases, for example by SIGSTOP, costs one delivery
// more than one that dies. While it has room for another job, its request waits at a bridge, and
// gets the job that the frozen process has lost.
type Worker struct {
	o       WorkerOptions
	work    Work
	sources []*source
	shares  shares // if there are several sources

	jobs       context.Context // parent of the contexts of jobs
	stopping   context.Context // ends when no more jobs should be leased
	stop       context.CancelFunc
	killed     context.Context // ends when the jobs under way should end
	kill       context.CancelCauseFunc
	overdue    context.Context // ends settleTime after the grace
	setOverdue context.CancelCauseFunc
	heartbeat  time.Duration  // of requests that wait for jobs
	background sync.WaitGroup // requests for jobs of empty queues; at the end, releases
	begun      atomic.Bool    // Run was called
	ended      chan struct{}  // closed when it returns

	stopOnce sync.Once
	settling *time.Timer // calls setOverdue, once the worker stops

	mu        sync.Mutex
	err       error // why Run ends
	unsettled unsettled
}

// ErrUnsettled is returned by [Worker.Run] if jobs could not be acknowledged or given back before
// it ended. Its text has their number and the ids of up to ten. A job whose acknowledgement counted
// after all does not come back.
var ErrUnsettled = errors.New("jobs that are not settled come back when their leases end")

// ErrStopped is the cause of the context of jobs that are still under way when the context of
// [Worker.Shutdown] ends.
var ErrStopped = errors.New("the worker was stopped")

const (
	// settleTime is how long after its grace a worker that stops tries to settle its jobs.
	settleTime = 5 * time.Second

	// defaultGrace is how long jobs have to end, if nobody says it. Those that take longer go on.
	defaultGrace = 25 * time.Second

	// maxNamed is how many unsettled jobs an error names.
	maxNamed = 10
)

var errOverdue = fmt.Errorf("the worker's grace period ended %v ago", settleTime)

// idleHeartbeat is how often the bridge confirms that a worker waits. After twice that time without
// a heartbeat, the worker gives the request up.
const idleHeartbeat = 5 * time.Second

// NewWorker returns a Worker of this queue. Call [Worker.Run] to start it. The error is
// [ErrBadRequest]; its text lists all options that are out of bounds and what would be right. For
// several queues, use the function [NewWorker].
func (q *Queue) NewWorker(work Work, o WorkerOptions) (*Worker, error) {
	return NewWorker(work, o, q.Weight(1))
}

// NewWorker returns a Worker of several queues. Call [Worker.Run] to start it. While all queues
// have jobs, the worker does jobs of each in proportion to the weights:
//
//	client.NewWorker(work, client.WorkerOptions{Concurrency: 8}, urgent.Weight(9), mail.Weight(1))
//
// Concurrency is for all queues together. Within each queue the order is strict. An empty queue
// takes nothing from the others; it costs one waiting request. If that request gets a job while the
// worker is fully busy, the job goes back until its queue has its turn, and the delivery does not
// count.
//
// The error is [ErrBadRequest]; its text lists all problems.
func NewWorker(work Work, o WorkerOptions, queues ...WeightedQueue) (*Worker, error) {
	var wrong problems
	if len(queues) == 0 {
		wrong.add("no queue: want one or more")
	}

	known := map[Queue]bool{}
	for _, q := range queues {
		if q.queue == nil {
			wrong.add("a WeightedQueue without a queue: want one of the method Weight")
			continue
		}
		if err := subjects.ValidateQueueName(q.queue.name); err != nil {
			wrong.add("%v", err)
		}
		if q.weight < 1 || q.weight > maxWeight {
			wrong.add("the weight of %s is %d: want 1 to %d", q.queue.name, q.weight, maxWeight)
		}
		if known[*q.queue] {
			wrong.add("the queue %s is there twice: want each once", q.queue.name)
		}
		if o.Max && q.queue.kind == subjects.FIFO {
			wrong.add("Max with the FIFO queue %s, which is served from one end: "+
				"want false, or a priority queue", q.queue.name)
		}
		known[*q.queue] = true
	}

	o.check(&wrong, work)
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return o.newWorker(work, queues)
}

// newWorker returns a Worker whose options are valid.
func (o WorkerOptions) newWorker(work Work, queues []WeightedQueue) (*Worker, error) {
	for i, wrap := range slices.Backward(o.Middleware) {
		if work = wrap(work); work == nil {
			return nil, badRequest("Middleware[%d] returned nil: want a function", i)
		}
	}

	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.RetryDelay = max(cmp.Or(o.RetryDelay, defaultRetryDelay), 0)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	w := &Worker{o: o, work: work, heartbeat: idleHeartbeat, ended: make(chan struct{})}
	w.shares.changed = sync.NewCond(&w.shares.mu)
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.killed, w.kill = context.WithCancelCause(context.Background())
	w.overdue, w.setOverdue = context.WithCancelCause(context.Background())
	w.settling = time.AfterFunc(time.Hour, func() { w.setOverdue(errOverdue) })
	w.settling.Stop()
	for _, q := range queues {
		w.sources = append(w.sources, w.newSource(q))
	}
	return w, nil
}

// Shutdown stops leasing jobs and waits until Run has returned, once the jobs under way are done.
// ctx is their grace. A Run that begins after Shutdown returns at once.
//
// If ctx ends first, Shutdown ends the contexts of these jobs and returns the error of ctx at once.
// Jobs that then return an error go back to the queue, and the delivery does not count. Wait for
// Run: if the program exits earlier, they come back only when their leases end.
//
// While NATS or the bridge is away, Run keeps trying to acknowledge jobs and to give them back
// until five seconds after ctx ends, at its deadline or before. If ctx has no deadline and does not
// end, it keeps trying for 30 s after the worker began to stop. With several calls, the latest that
// has a deadline counts, until the context of one of them ends.
//
// A Work must not wait for its own end. With the context of a job of this worker, Shutdown returns
// [ErrBadRequest] once the worker has stopped leasing. With another context, it waits until that
// ends.
func (w *Worker) Shutdown(ctx context.Context) error {
	if end, has := ctx.Deadline(); has {
		w.stopWithin(time.Until(end))
	} else {
		w.stopByDefault()
	}
	if ctx.Value(jobsOf{w}) != nil {
		return badRequest("Shutdown with the context of a job that it would wait for: " +
			"the worker leases no more, and ends once Work has returned")
	}

	if !w.begun.Load() {
		return nil
	}

	err := await(ctx, w.ended)
	if err != nil {
		w.stopWithin(0)
		w.kill(ErrStopped)
	}
	return err
}

// stopWithin has the worker lease no more jobs, and try to settle those it has until settleTime
// after the grace. That replaces the grace of an earlier call.
func (w *Worker) stopWithin(grace time.Duration) {
	w.stopByDefault()
	w.settling.Reset(min(max(grace, 0), math.MaxInt64-settleTime) + settleTime)
}

// stopByDefault is stopWithin for a worker that nobody gave a grace.
func (w *Worker) stopByDefault() {
	w.stopOnce.Do(func() {
		w.settling.Reset(defaultGrace + settleTime)
		w.stop()
	})
}

// fail stops the worker because of a permanent error.
func (w *Worker) fail(err error) {
	w.mu.Lock()
	w.err = cmp.Or(w.err, err)
	w.mu.Unlock()
	w.stopByDefault()
}

// jobsOf is the key of a value in the contexts of a worker's jobs.
type jobsOf struct{ *Worker }

// unsettled has the jobs that could not be settled.
type unsettled struct {
	named []string // queues and ids
	last  error
}

// result returns the error of a Run that ended because of err, which may be nil.
func (u *unsettled) result(err error) error {
	if len(u.named) == 0 {
		return err
	}
	some := u.named[:min(len(u.named), maxNamed)]
	return fmt.Errorf("%w: %d of them, such as %s: %w", ErrUnsettled, len(u.named),
		strings.Join(some, ", "), cmp.Or(err, u.last))
}
