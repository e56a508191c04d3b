package client

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
)

// Run does jobs until ctx ends or [Worker.Shutdown] is called. Then it leases no more jobs, and
// returns nil once the jobs under way are done. Their contexts have the values of ctx but do not
// end with it. An idle worker returns once the bridge has confirmed that no job is on its way,
// after at most two seconds. A worker can run once.
//
// While NATS or the bridge is away, jobs cannot be acknowledged. Run keeps trying until five
// seconds after the grace, which is 25 s after ctx ended, unless Shutdown says otherwise. A job
// that ends later has one attempt, of at most five seconds. Then Run returns [ErrUnsettled], which
// names the jobs that are not settled.
//
// Run also returns if it cannot go on: with nats.ErrConnectionClosed or nats.ErrConnectionDraining,
// with nats.ErrPermissionViolation if the connection may not lease, acknowledge or receive replies,
// or with [ErrBadRequest] if the bridge has other bounds than this package. It logs all other
// errors and tries again, even a refusal that may be of an earlier request.
func (w *Worker) Run(ctx context.Context) error {
	if w.begun.Swap(true) {
		return errors.New("this worker has run before")
	}
	defer close(w.ended)

	for _, s := range w.sources {
		if s.queue.client.nc == nil {
			return notSent(s.queue.name, nats.ErrInvalidConnection)
		}
	}

	if ctx.Err() != nil {
		w.stopByDefault() // before it leases anything
	}
	defer context.AfterFunc(ctx, w.stopByDefault)()
	defer context.AfterFunc(w.stopping, w.shares.wakeAll)()
	defer w.followConnections()()

	// The contexts of jobs have the values of ctx, and end with Shutdown.
	jobs := context.WithValue(context.WithoutCancel(ctx), jobsOf{w}, true)
	jobs, end := context.WithCancelCause(jobs)
	defer context.AfterFunc(w.killed, func() { end(context.Cause(w.killed)) })()
	w.jobs = jobs

	var loops sync.WaitGroup
	for range w.o.Concurrency {
		loops.Go(w.doJobs)
	}
	loops.Wait()
	w.background.Wait()
	w.releaseAhead()

	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsettled.result(w.err)
}

// followConnections has all queues follow their connections until stop returns.
func (w *Worker) followConnections() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var followers sync.WaitGroup
	for _, s := range w.sources {
		followers.Go(func() { s.followConnection(ctx) })
	}
	return func() {
		cancel()
		followers.Wait()
	}
}

// releaseAhead releases the jobs that were leased ahead, for which no loop is left.
func (w *Worker) releaseAhead() {
	for _, s := range w.sources {
		if s.share.ahead != nil {
			w.background.Go(func() { s.release(s.share.ahead) })
		}
	}
	w.background.Wait()
}

// doJobs does one job after the other, until the worker stops.
func (w *Worker) doJobs() {
	for h := w.next(); h != nil; {
		if h = h.source.doAndSettle(h); h == nil {
			h = w.next()
		}
	}
}

// next leases a job, and returns nil if the worker stops.
func (w *Worker) next() *heldJob {
	if len(w.sources) > 1 {
		return w.nextShared()
	}
	return w.sources[0].lease()
}

// doAndSettle does a job and settles it. One request acknowledges it and leases the next, which is
// returned if there is one.
func (s *source) doAndSettle(h *heldJob) (next *heldJob) {
	if s.stopping.Err() != nil { // the job came while the worker was stopping
		s.release(h)
		return nil
	}

	failed := s.do(h)
	switch {
	case failed != nil:
		s.settleFailed(h, failed)
		return nil
	case len(s.sources) > 1:
		return s.finishShared(h)
	}
	return s.acknowledge(h, true)
}

// do calls the Work, and says what becomes of the job if it has failed.
func (s *source) do(h *heldJob) *workFailure {
	ctx, done := h.limit(s.o.JobTimeout)
	defer done()
	returned := false
	defer func() {
		if !returned { // Work has called runtime.Goexit, which ends this goroutine
			s.settleFailed(h, &workFailure{text: "Work called runtime.Goexit", delay: Backoff})
			s.background.Go(s.doJobs)
		}
	}()

	failed := s.work.callSafely(ctx, &Job{
		Item:       h.Item,
		Queue:      s.queue.name,
		Deliveries: h.Deliveries,
		MaxDeliver: h.MaxDeliver,
		result:     &h.result,
		progress:   h.tellProgress,
	})
	returned = true
	if failed != nil && errors.Is(context.Cause(ctx), ErrTimedOut) {
		failed.timeOut()
	}
	return failed
}
