package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Worker does the jobs of a queue, or of several: see [NewWorker]. It leases one job after the
// other, waits while there is none, and survives restarts of bridges and NATS servers. Each job is
// done at least once, and by one worker at a time as long as that worker extends its lease in time.
//
// The connection should reconnect indefinitely: nats.MaxReconnects(-1) and
// nats.IgnoreAuthErrorAbort(). Otherwise the NATS client closes it after two minutes without a
// server, or at the second time that the server refuses the login, and Run returns. With
// nats.PingInterval(20*time.Second) it notices within a minute, not six, that the machine of the
// server is gone.
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
	background sync.WaitGroup // requests for jobs of empty queues
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

// WorkerOptions are the options of a [Worker]. The zero value is ready to use.
type WorkerOptions struct {
	// Concurrency is the number of jobs done at the same time, up to 100,000; 0 means 1.
	Concurrency int

	// AckWait is the length of a lease, 100 ms to 12 h. The worker extends a lease whenever a third
	// of it has passed, so a job may take as long as it needs. If the worker dies, others get its
	// jobs after this time. 0 means the setting of the queue, or 30 s if it has none.
	AckWait time.Duration

	// Holder is the name that the leases are taken with: up to 128 bytes of UTF-8 without control
	// characters. "" means DefaultHolder.
	Holder string

	// JobTimeout is how long a job may take; 0 means no limit. After that, the context of its Work
	// ends with the cause [ErrTimedOut]; its Deadline says so in advance. If Work then returns an
	// error, the job fails with the reason "timed out". If it returns nil, however late, the job is
	// done. After the timeout only Job.Progress extends the lease. So if Work hangs, others get the
	// job at most one AckWait later.
	JobTimeout time.Duration

	// RetryDelay is after how long a job that failed comes back, if its queue has no backoff: after
	// the first delivery, and twice as long after each further one, up to a minute or RetryDelay
	// itself, whichever is longer. 0 means 1 s; the most is ten years. Below 0, it is at once.
	RetryDelay time.Duration

	// Max takes the jobs with the largest priority first. FIFO queues do not have it.
	Max bool

	// Middleware wraps the Work; the first is outermost.
	Middleware []func(Work) Work

	// Logger logs what goes wrong; nil means slog.Default(). It gets a line for each job that
	// fails, is dropped or timed out, and for each that the worker loses or cannot settle. What the
	// worker tries again, such as to extend a lease, to lease a job or to settle one, it logs at
	// most once a minute for each of these and each queue.
	Logger *slog.Logger
}

// defaultRetryDelay keeps a job that fails at once from being delivered a hundred times a second.
const defaultRetryDelay = time.Second

// maxConcurrency is the most jobs that one worker does at a time.
const maxConcurrency = 100_000

// check adds the problems of the options that do not depend on the queues.
func (o *WorkerOptions) check(wrong *problems, work Work) {
	if work == nil {
		wrong.add("the Work is nil: want a function")
	}
	if o.Concurrency < 0 || o.Concurrency > maxConcurrency {
		wrong.add("Concurrency is %d: want 1 to %d, or 0 for 1", o.Concurrency, maxConcurrency)
	}
	if o.AckWait != 0 && (o.AckWait < settings.MinLease || o.AckWait > settings.MaxLease) {
		wrong.add("AckWait is %v: want %v to %v, or 0 for what the settings of the queue say",
			o.AckWait, settings.MinLease, settings.MaxLease)
	}
	if err := settings.CheckHolder(o.Holder); err != nil {
		wrong.add("Holder: %v", err)
	}
	if o.RetryDelay > settings.MaxDelay {
		wrong.add("RetryDelay is %v: want up to %v, 0 for %v, or less than 0 for at once",
			o.RetryDelay, settings.MaxDelay, defaultRetryDelay)
	}
	if o.JobTimeout < 0 {
		wrong.add("JobTimeout is %v: want more than 0, or 0 for none", o.JobTimeout)
	}

	for i, wrap := range o.Middleware {
		if wrap == nil {
			wrong.add("Middleware[%d] is nil: want a function", i)
		}
	}
}
