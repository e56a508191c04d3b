package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Worker does the jobs of a queue, or of several: see [NewWorker]. It leases them one after the other, waits while there is none,
// and rides through restarts of bridges and NATS servers. Each job is done at least once, and by
// one worker at a time as long as that extends its lease in time.
//
// A process that is frozen for longer than its leases, as by SIGSTOP, costs one delivery more than
// one that dies: while there is room for another job, a request for one waits at a bridge, and gets
// what the frozen process has lost.
//
// The connection should reconnect indefinitely: nats.MaxReconnects(-1). Otherwise the NATS client
// closes it after two minutes without a server, and Run returns.
//
// Without Prefetch, a worker that has work to do makes one request for each job: it acknowledges
// the one that is done and leases the next. With Concurrency, jobs that end while two such requests
// are under way share the next one: it acknowledges them together and leases as many. With
// Prefetch, such jobs share an acknowledgement.
type Worker struct {
	o       WorkerOptions
	work    Work
	sources []*source
	shares  shares // if there are several sources

	jobs             context.Context // parent of the contexts of jobs
	stopping, killed context.Context // end when no more jobs are leased, and when those under way end
	stop             context.CancelFunc
	kill             context.CancelCauseFunc
	heartbeat        time.Duration  // of the requests that wait for jobs
	settingsAge      time.Duration  // after which jobs have the settings read again
	background       sync.WaitGroup // requests for settings, and for jobs of queues that are empty

	mu    sync.Mutex
	ended chan struct{} // closed when Run returns; nil before it begins
	err   error         // why Run ends
}

// ErrStopped is the cause of the context of jobs that are still under way when the context of
// [Worker.Shutdown] ends.
var ErrStopped = errors.New("the worker was stopped")

// idleHeartbeat is how often the bridge confirms that a worker waits. A worker that hears nothing
// for twice that long gives the request up.
const idleHeartbeat = 5 * time.Second

// NewWorker returns a Worker of this queue, for Run. The error is [ErrBadRequest], and says of each
// option that is out of bounds what would be right. The function [NewWorker] is for several queues.
func (q *handle) NewWorker(work Work, o WorkerOptions) (*Worker, error) {
	return newWorker(work, o, []WeightedQueue{{q, 1}})
}

func newWorker(work Work, o WorkerOptions, queues []WeightedQueue) (*Worker, error) {
	kind := subjects.Priority
	for _, q := range queues {
		if _, err := q.queue.subject(q.queue.popVerb()); err != nil {
			return nil, err
		}
		if q.queue.kind == subjects.FIFO {
			kind = subjects.FIFO // of which Max is too much to ask
		}
	}
	if err := o.check(kind, work); err != nil {
		return nil, err
	}
	work, err := o.wrap(work)
	if err != nil {
		return nil, err
	}

	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	w := &Worker{o: o, work: work, heartbeat: idleHeartbeat, settingsAge: settingsAge}
	w.shares.changed = sync.NewCond(&w.shares.mu)
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.killed, w.kill = context.WithCancelCause(context.Background())
	for _, q := range queues {
		w.sources = append(w.sources, w.newSource(q))
	}
	return w, nil
}

// Shutdown leases no more jobs, and waits until Run has returned, which is once the jobs under way
// are done. If ctx ends before, it ends the contexts of these jobs and returns the error of ctx at
// once. Those that then return an error are given back, and the delivery does not count: wait for
// Run, or they come back when their leases are over. A Run that begins later returns at once.
func (w *Worker) Shutdown(ctx context.Context) error {
	w.stop()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ended == nil {
		return nil
	}

	err := await(ctx, ended)
	if err != nil {
		w.kill(ErrStopped)
	}
	return err
}

// fail stops the worker because of an error that will not go away.
func (w *Worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.stop()
}
