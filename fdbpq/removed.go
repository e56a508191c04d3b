package fdbpq

import "sync"

// Removed is how many items left their queues although no operation took or removed them.
type Removed struct {
	Expired   int64 // because they had expired
	Discarded int64 // because of DiscardOld
	Dead      int64 // because they moved to a dead-letter queue
}

// Add adds other items.
func (r *Removed) Add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
}

// removedSoFar is a sum that may be read at any time.
type removedSoFar struct {
	mu  sync.Mutex
	sum Removed
}

func (s *removedSoFar) add(more Removed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Add(more)
}

// Removed returns how many items batches have removed so far although no operation took or removed them. It
// counts each item once, also if the store did not say whether a batch committed, as soon as that is settled.
// It may be called at any time.
func (b *Batcher) Removed() Removed {
	b.removed.mu.Lock()
	defer b.removed.mu.Unlock()
	return b.removed.sum
}
