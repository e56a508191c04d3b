package client

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// Run does jobs until Stop is called, or ctx ends, which is like the first call of Stop. The
// contexts of the jobs have the values of ctx. A worker runs once.
//
// Run returns nil then. Otherwise the error says why there is no point in going on:
// nats.ErrConnectionClosed or nats.ErrConnectionDraining; or [ErrBadRequest], if the bridge knows
// other bounds than this package. Everything else it tries again, and logs.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	again := w.running
	w.running = true
	w.mu.Unlock()
	if again {
		return errors.New("this worker has run before")
	}

	if ctx.Err() != nil {
		w.stop() // before anything is leased
	}
	defer context.AfterFunc(ctx, w.stop)()

	if err := w.findAckWait(); err != nil {
		return err
	}
	w.acks.slow = cmp.Or(w.acks.slow, w.patience()/4)

	jobs, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(w.killed, func() { end(context.Cause(w.killed)) })()
	w.jobs = jobs

	var all sync.WaitGroup
	if w.o.Prefetch > 0 {
		w.runPrefetched(&all)
	} else {
		for range w.o.Concurrency {
			all.Go(w.runStrictly)
		}
	}
	all.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// findAckWait asks for the length of leases unless it is given.
func (w *Worker) findAckWait() error {
	if w.o.AckWait != 0 {
		return nil
	}
	w.o.AckWait = settings.DefaultLease

	unanswered := 0
	for p := new(pause); w.stopping.Err() == nil; p.wait(w.stopping) {
		ctx, cancel := context.WithTimeout(w.stopping, w.patience())
		set, err := w.queue.Settings(ctx)
		cancel()
		switch {
		case err == nil:
			w.o.AckWait = set.LeaseWait()
			return nil
		case isHopeless(err):
			return err
		case w.stopping.Err() != nil:
			return nil
		}
		w.log.Warn("cannot read the settings of the queue", "error", err)

		// NATS does not answer those who may not ask.
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNotSent) {
			unanswered++
		}
		if unanswered == 2 {
			w.log.Warn("takes the default length of leases, since the settings of the queue cannot be read: is it allowed to?", "ack_wait", w.o.AckWait)
			return nil
		}
	}
	return nil
}

// runStrictly does one job after the other. It acknowledges a job and leases the next in one
// request.
func (w *Worker) runStrictly() {
	var h *heldJob
	for {
		if h == nil {
			list := w.lease(1)
			if len(list) == 0 {
				return
			}
			h = list[0]
		}
		if w.stopping.Err() != nil {
			w.giveBack(h)
			return
		}

		if err := w.do(h); err != nil {
			w.settleFailed(h, err)
			h = nil
		} else {
			h = w.acknowledge(h, w.ackAndLease)
		}
	}
}

// runPrefetched leases jobs ahead of those who do them.
func (w *Worker) runPrefetched(all *sync.WaitGroup) {
	room := make(chan struct{}, w.o.Concurrency+w.o.Prefetch) // has one for each job that is held
	leased := make(chan *heldJob, cap(room))

	all.Go(func() { w.leaseAhead(room, leased) })
	for range w.o.Concurrency {
		all.Go(func() {
			for h := range leased {
				if w.stopping.Err() != nil || h.ctx.Err() != nil { // or it has waited for too long
					all.Go(func() { // all at once, since each may take long if NATS is away
						w.giveBack(h)
						<-room
					})
					continue
				}

				err := w.do(h)
				all.Go(func() { // while the next one is done
					if err != nil {
						w.settleFailed(h, err)
					} else {
						w.acknowledge(h, w.ackOnly)
					}
					<-room
				})
			}
		})
	}
}

// leaseAhead leases as many jobs as there is room for, until the worker stops.
func (w *Worker) leaseAhead(room chan struct{}, leased chan<- *heldJob) {
	defer close(leased)
	for w.stopping.Err() == nil {
		select {
		case room <- struct{}{}:
		case <-w.stopping.Done():
			return
		}
		n := 1
		for ; n < cap(room) && len(room) < cap(room); n++ {
			room <- struct{}{} // nobody else adds any
		}

		list := w.lease(n)
		for _, h := range list {
			leased <- h
		}
		for range n - len(list) {
			<-room
		}
	}
}

// do calls the Work.
func (w *Worker) do(h *heldJob) error {
	ctx, done := h.limit(w.o.JobTimeout)
	defer done()
	err := w.work.callSafely(ctx, &Job{Item: h.Item, Queue: w.queue.name, Deliveries: h.Deliveries})

	if err != nil && errors.Is(context.Cause(ctx), ErrTimedOut) {
		return timedOut(err)
	}
	return err
}
