package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// Run does jobs until ctx ends or [Worker.Shutdown] is called. Then it leases no more jobs, and
// returns nil once the jobs under way are done. Their contexts have the values of ctx but do not
// end with it. An idle worker returns once the bridge has confirmed that no job is on its way,
// after at most two seconds. A worker can run once.
//
// While NATS or the bridge is away, jobs cannot be acknowledged. Run keeps trying for 30 s after it
// began to stop. A job that ends later has one more attempt, which takes no longer than the timeout
// of the client. Then Run returns [ErrUnsettled], which names these jobs.
//
// Run also returns if it cannot go on: with nats.ErrConnectionClosed or nats.ErrConnectionDraining,
// with nats.ErrPermissionViolation if the connection may not lease, acknowledge or receive replies,
// or with [ErrBadRequest] if the bridge has other bounds than this package. It logs all other
// errors and tries again, even a refusal that may be of an earlier request.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	again := w.ended != nil
	if !again {
		w.ended = make(chan struct{})
	}

	w.mu.Unlock()
	if again {
		return errors.New("this worker has run before")
	}
	defer close(w.ended)

	if ctx.Err() != nil {
		w.stop() // before it leases anything
	}
	defer context.AfterFunc(ctx, w.stop)()
	defer context.AfterFunc(w.stopping, w.shares.wakeAll)()
	defer context.AfterFunc(w.stopping, func() {
		time.AfterFunc(settleTime, func() { w.setOverdue(errOverdue) })
	})()

	following, unfollow := context.WithCancel(context.Background())
	var followers sync.WaitGroup
	for _, s := range w.sources {
		s.acks.slow = cmp.Or(s.acks.slow, s.patience()/4)
		followers.Go(func() { s.followConnection(following) })
	}
	defer followers.Wait()
	defer unfollow()

	// The contexts of jobs have the values of ctx, and end with Shutdown.
	jobs := context.WithValue(context.WithoutCancel(ctx), jobsOf{w}, true)
	jobs, end := context.WithCancelCause(jobs)
	defer context.AfterFunc(w.killed, func() { end(context.Cause(w.killed)) })()
	w.jobs = jobs

	var all sync.WaitGroup
	if w.o.Prefetch > 0 {
		w.sources[0].runPrefetched(&all)
	} else {
		for range w.o.Concurrency {
			all.Go(w.runStrictly)
		}
	}

	all.Wait()
	w.background.Wait()

	// No loop is left for the jobs that were leased ahead.
	for _, s := range w.sources {
		if s.share.ahead != nil {
			all.Go(func() { s.giveBack(s.share.ahead) })
		}
	}

	all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsettled.result(w.err)
}

// jobsOf is the key of a value in the contexts of a worker's jobs.
type jobsOf struct{ *Worker }

// runStrictly does one job after the other. One request acknowledges a job and leases the next.
func (w *Worker) runStrictly() {
	var h *heldJob
	for {
		if h == nil {
			if h = w.next(); h == nil {
				return
			}
		}

		// The job may have come while the worker was stopping.
		s := h.source
		if w.stopping.Err() != nil {
			s.giveBack(h)
			return
		}

		if failed := s.do(h); failed != nil {
			s.settleFailed(h, failed)
			h = nil
		} else {
			h = s.finish(h)
		}
	}
}

// next leases a job, and returns nil if the worker stops.
func (w *Worker) next() *heldJob {
	if len(w.sources) > 1 {
		return w.nextShared()
	}
	if list := w.sources[0].lease(1); len(list) > 0 {
		return list[0]
	}
	return nil
}

// finish acknowledges a job, and returns the next one if it has leased one.
func (s *source) finish(h *heldJob) (next *heldJob) {
	if len(s.sources) > 1 {
		return s.finishShared(h)
	}
	return s.acknowledge(h, true)
}

// runPrefetched leases jobs ahead of the loops that do them.
func (s *source) runPrefetched(all *sync.WaitGroup) {
	room := make(chan struct{}, s.o.Concurrency+s.o.Prefetch) // has an element for each held job
	leased := make(chan *heldJob, cap(room))

	all.Go(func() { s.leaseAhead(room, leased) })
	for range s.o.Concurrency {
		all.Go(func() {
			for h := range leased {
				// The worker stops, or the lease ended before the job had its turn. Each job goes
				// back on its own, because that may take long if NATS is away.
				if s.stopping.Err() != nil || h.ctx.Err() != nil {
					all.Go(func() {
						s.giveBack(h)
						<-room
					})
					continue
				}

				// Settle the job while this loop does the next.
				failed := s.do(h)
				all.Go(func() {
					if failed != nil {
						s.settleFailed(h, failed)
					} else {
						s.acknowledge(h, false)
					}
					<-room
				})
			}
		})
	}
}

// leaseAhead leases jobs whenever there is room, until the worker stops.
func (s *source) leaseAhead(room chan struct{}, leased chan<- *heldJob) {
	defer close(leased)
	for s.stopping.Err() == nil {
		select {
		case room <- struct{}{}:
		case <-s.stopping.Done():
			return
		}

		// Take all the room there is. Nobody else adds to it, so this never blocks.
		n := 1
		for ; n < cap(room) && len(room) < cap(room); n++ {
			room <- struct{}{}
		}

		list := s.lease(n)
		for _, h := range list {
			leased <- h
		}

		for range n - len(list) {
			<-room
		}
	}
}
