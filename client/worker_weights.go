package client

import (
	"fmt"
	"slices"
	"sync"
)

// WeightedQueue is a queue among those of a Worker: see [NewWorker].
type WeightedQueue struct {
	queue  *handle
	weight int
}

// Weight returns this queue for [NewWorker], with a weight of 1 to 1,000.
func (q *handle) Weight(n int) WeightedQueue { return WeightedQueue{q, n} }

// maxWeight is the largest weight.
const maxWeight = 1000

// NewWorker returns a Worker of several queues, for Run. While all of them have jobs, the number of
// jobs that it does of each is in proportion to the weights:
//
//	client.NewWorker(work, client.WorkerOptions{Concurrency: 8}, urgent.Weight(9), mail.Weight(1))
//
// The Concurrency is for all of them together, and Prefetch must be 0. Within each queue the order
// is strict. A queue without jobs takes nothing from the others, and costs a request that waits. If
// a job ends that wait while there is nobody to do it, it goes back, uncounted, until its queue has
// its turn.
//
// The error is [ErrBadRequest], and says all that is wrong.
func NewWorker(work Work, o WorkerOptions, queues ...WeightedQueue) (*Worker, error) {
	var problems []string
	if len(queues) == 0 {
		problems = append(problems, "no queue: want one or more")
	}
	if len(queues) > 1 && o.Prefetch > 0 {
		problems = append(problems, fmt.Sprintf("Prefetch is %d: want 0 for several queues", o.Prefetch))
	}

	for i, q := range queues {
		if q.queue == nil {
			problems = append(problems, "a WeightedQueue without a queue: want one of the method Weight")
			continue
		}
		if q.weight < 1 || q.weight > maxWeight {
			problems = append(problems, fmt.Sprintf("the weight of %s is %d: want 1 to %d", q.queue.name, q.weight, maxWeight))
		}
		if slices.ContainsFunc(queues[:i], func(other WeightedQueue) bool { return other.queue != nil && *other.queue == *q.queue }) {
			problems = append(problems, fmt.Sprintf("the queue %s is there twice: want each once", q.queue.name))
		}
	}
	if err := badOptions(problems); err != nil {
		return nil, err
	}
	return newWorker(work, o, queues)
}

// shares gives the turns of several queues to those who do jobs, in proportion to their weights: it
// picks the queue that has had the fewest turns for its weight.
type shares struct {
	mu      sync.Mutex
	changed *sync.Cond // there may be a job for somebody who is free, or the worker stops
	free    int        // how many wait for that
	passed  float64    // the turns, for its weight, of the queue that was picked
}

// share is what shares knows of one source.
type share struct {
	weight float64
	turns  float64  // for its weight
	empty  bool     // a request waits for a job
	ahead  *heldJob // has ended that wait, for somebody who was free
}

// pick returns the queue whose turn it is, with the job that was leased ahead, if any. If all are
// empty it waits, or returns nil unless it may wait. It also returns nil if the worker stops.
func (w *Worker) pick(wait bool) (s *source, ahead *heldJob) {
	w.shares.mu.Lock()
	defer w.shares.mu.Unlock()

	for ; w.stopping.Err() == nil; w.shares.changed.Wait() {
		for _, other := range w.sources {
			switch {
			case other.share.empty:
			case s == nil, s.share.ahead == nil && (other.share.ahead != nil || other.share.turns < s.share.turns):
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
		w.shares.free++ // whoever wakes it counts it out
	}
	return nil, nil
}

// wakeOne wakes one of those who are free, since a queue that had a job may have more. The caller
// holds the lock.
func (t *shares) wakeOne() {
	if t.free > 0 {
		t.free--
		t.changed.Signal()
	}
}

// wakeAll wakes all who are free, because the worker stops.
func (t *shares) wakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed.Broadcast()
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

// finishShared acknowledges a job, and leases one of the queue whose turn it is: in the same request
// if that is the same queue.
func (s *source) finishShared(h *heldJob) (next *heldJob) {
	turn, ahead := s.pick(false)
	if turn == s && ahead == nil {
		return s.took(s.acknowledge(h, s.ackAndLease))
	}

	var acked sync.WaitGroup
	acked.Go(func() { s.acknowledge(h, s.ackOnly) })
	defer acked.Wait()
	switch {
	case turn == nil:
		return nil
	case ahead != nil:
		return turn.took(ahead)
	}
	return turn.leaseNow() // at the same time
}

// leaseNow leases a job if there is one.
func (s *source) leaseNow() *heldJob {
	list, _ := s.leaseOnce(s.leaseOptions(0))
	if len(list) == 0 { // the request that waits meets the error again, if it was one
		return s.took(nil)
	}
	return s.took(list[0])
}

// took records the result of a turn of the queue. If there was no job, the queue has no turns until a
// request that waits has got one.
func (s *source) took(h *heldJob) *heldJob {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()

	if h != nil {
		s.shares.wakeOne()
		return h
	}

	s.share.turns -= 1 / s.share.weight
	if !s.share.empty && s.share.ahead == nil { // else a job has come since that request
		s.share.empty = true
		s.background.Go(s.awaitJob)
	}
	return nil
}

// awaitJob waits until the queue has a job. If nobody is free to do that, it goes back: it may be
// long until the queue has its turn, and there may be a more urgent one then.
func (s *source) awaitJob() {
	list := s.lease(1)
	if len(list) == 0 {
		return // the worker stops
	}

	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	if s.shares.free > 0 {
		s.share.ahead = list[0]
	} else {
		s.shares.mu.Unlock()
		s.giveBack(list[0])
		s.shares.mu.Lock()
	}

	s.share.empty = false
	s.share.turns = max(s.share.turns, s.shares.passed) // a rest saves up no turns
	s.shares.wakeOne()
}

// giveBackAhead gives back the jobs that nobody was there to do any more.
func (w *Worker) giveBackAhead() {
	for _, s := range w.sources {
		if s.share.ahead != nil {
			s.giveBack(s.share.ahead)
		}
	}
}
