package client

import "sync"

// pick returns the queue whose turn it is, and the job that was leased ahead for it, if any. If all
// queues are empty, it waits if wait is set, or else returns nil. It also returns nil if the worker
// stops.
func (w *Worker) pick(wait bool) (s *source, ahead *heldJob) {
	w.shares.mu.Lock()
	defer w.shares.mu.Unlock()

	for ; w.stopping.Err() == nil; w.shares.changed.Wait() {
		for _, other := range w.sources {
			if !other.share.empty && (s == nil || other.share.before(&s.share)) {
				s = other
			}
		}

		if s != nil {
			w.shares.passed = max(w.shares.passed, s.share.turns)
			s.share.turns += 1 / s.share.weight
			ahead, s.share.ahead = s.share.ahead, nil
			return s, ahead
		}

		if !wait {
			return nil, nil
		}
		w.shares.freeLoops++ // wakeOne subtracts it
	}
	return nil, nil
}

// nextShared leases a job of the queue whose turn it is, and returns nil if the worker stops.
func (w *Worker) nextShared() *heldJob {
	for {
		s, ahead := w.pick(true)
		switch {
		case s == nil:
			return nil
		case ahead != nil:
			return s.took(ahead)
		}

		if h := s.leaseNow(); h != nil {
			return h
		}
	}
}

// finishShared acknowledges a job and leases one of the queue whose turn it is, in one request if
// it is the same queue.
func (s *source) finishShared(h *heldJob) (next *heldJob) {
	turn, ahead := s.pick(false)
	if turn == s && ahead == nil {
		return s.took(s.acknowledge(h, true))
	}

	// Otherwise at the same time, in two requests.
	var acked sync.WaitGroup
	acked.Go(func() { s.acknowledge(h, false) })
	defer acked.Wait()
	switch {
	case turn == nil:
		return nil
	case ahead != nil:
		return turn.took(ahead)
	}
	return turn.leaseNow()
}

// leaseNow leases a job, if there is one, without waiting.
func (s *source) leaseNow() *heldJob {
	ctx, cancel := s.attempt()
	defer cancel()
	h, _ := s.leaseOnce(ctx) // after an error, the waiting request of awaitJob meets it again
	return s.took(h)
}

// took records the result of a turn of the queue. If there was no job, the queue has no turns until
// a waiting request gets one.
func (s *source) took(h *heldJob) *heldJob {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()

	if h != nil {
		s.shares.wakeOne()
		return h
	}

	s.share.turns -= 1 / s.share.weight
	if !s.share.empty && s.share.ahead == nil { // otherwise a job has come since that request
		s.share.empty = true
		s.background.Go(s.awaitJob)
	}
	return nil
}

// awaitJob waits until the queue has a job. If no loop is free, the job goes back: it may be long
// until the queue has its turn, and there may be a more urgent job then.
func (s *source) awaitJob() {
	h := s.lease()
	if h == nil {
		return // the worker stops
	}

	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	if s.shares.freeLoops > 0 {
		s.share.ahead = h
	} else {
		s.shares.mu.Unlock()
		s.release(h)
		s.shares.mu.Lock()
	}

	s.share.empty = false
	s.share.turns = max(s.share.turns, s.shares.passed) // an empty queue saves up no turns
	s.shares.wakeOne()
}
