package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
)

// Run does jobs until ctx ends or Shutdown is called. Then it leases no more, and returns once the
// jobs under way are done: their contexts do not end with ctx, but have its values. While there is
// nothing to do, it returns once the bridge has confirmed that nothing more comes, after two seconds
// at the latest. A worker runs once.
//
// Run returns nil then. Otherwise the error says why there is no point in going on:
// nats.ErrConnectionClosed or nats.ErrConnectionDraining; or [ErrBadRequest], if the bridge knows
// other bounds than this package. Everything else it tries again, and logs.
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
		w.stop() // before anything is leased
	}
	defer context.AfterFunc(ctx, w.stop)()
	defer context.AfterFunc(w.stopping, w.shares.wakeAll)()

	for _, s := range w.sources {
		if err := s.findSettings(); err != nil {
			return err
		}
		s.acks.slow = cmp.Or(s.acks.slow, s.patience()/4)
	}

	jobs, end := context.WithCancelCause(context.WithoutCancel(ctx))
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
	w.giveBackAhead()

	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// runStrictly does one job after the other. It acknowledges a job and leases the next in one
// request.
func (w *Worker) runStrictly() {
	var h *heldJob
	for {
		if h == nil {
			if h = w.next(); h == nil {
				return
			}
		}
		s := h.source
		if w.stopping.Err() != nil {
			s.giveBack(h)
			return
		}

		if err := s.do(h); err != nil {
			s.settleFailed(h, err)
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

// finish acknowledges a job, and returns the next if it has leased one.
func (s *source) finish(h *heldJob) (next *heldJob) {
	if len(s.sources) > 1 {
		return s.finishShared(h)
	}
	return s.acknowledge(h, s.ackAndLease)
}

// runPrefetched leases jobs ahead of the loops that do them.
func (s *source) runPrefetched(all *sync.WaitGroup) {
	room := make(chan struct{}, s.o.Concurrency+s.o.Prefetch) // has one for each job that is held
	leased := make(chan *heldJob, cap(room))

	all.Go(func() { s.leaseAhead(room, leased) })
	for range s.o.Concurrency {
		all.Go(func() {
			for h := range leased {
				if s.stopping.Err() != nil || h.ctx.Err() != nil { // or it has waited for too long
					all.Go(func() { // all at once, since each may take long if NATS is away
						s.giveBack(h)
						<-room
					})
					continue
				}

				err := s.do(h)
				all.Go(func() { // while the next one is done
					if err != nil {
						s.settleFailed(h, err)
					} else {
						s.acknowledge(h, s.ackOnly)
					}
					<-room
				})
			}
		})
	}
}

// leaseAhead leases as many jobs as there is room for, until the worker stops.
func (s *source) leaseAhead(room chan struct{}, leased chan<- *heldJob) {
	defer close(leased)
	for s.stopping.Err() == nil {
		select {
		case room <- struct{}{}:
		case <-s.stopping.Done():
			return
		}
		n := 1
		for ; n < cap(room) && len(room) < cap(room); n++ {
			room <- struct{}{} // nobody else adds any
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
