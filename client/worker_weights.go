package client

import "sync"

// WeightedQueue is one of several queues of a [Worker]: see [NewWorker].
type WeightedQueue struct {
	queue  *Queue
	weight int
}

// Weight returns this queue with a weight of 1 to 1,000, for [NewWorker].
func (q *Queue) Weight(n int) WeightedQueue { return WeightedQueue{q, n} }

// maxWeight is the largest weight.
const maxWeight = 1000

// shares gives turns to several queues in proportion to their weights: the queue with the fewest
// turns, divided by its weight, has the next turn.
type shares struct {
	mu        sync.Mutex
	changed   *sync.Cond // there may be a job for a free loop, or the worker stops
	freeLoops int        // waiting for that
	passed    float64    // share.turns of the queue that had the last turn
}

// share is what shares knows of one source.
type share struct {
	weight float64
	turns  float64  // divided by weight
	empty  bool     // a request waits for a job
	ahead  *heldJob // the job that ended this wait, for a free loop
}

// before reports whether a queue has its turn before another: first a job that was leased ahead,
// then the fewest turns.
func (t *share) before(other *share) bool {
	return other.ahead == nil && (t.ahead != nil || t.turns < other.turns)
}

// wakeOne wakes a free loop, because a queue that had a job may have more. The caller holds the
// lock.
func (t *shares) wakeOne() {
	if t.freeLoops > 0 {
		t.freeLoops--
		t.changed.Signal()
	}
}

// wakeAll wakes all free loops, because the worker stops.
func (t *shares) wakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed.Broadcast()
}
