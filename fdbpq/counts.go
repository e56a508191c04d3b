package fdbpq

// countsByQueue holds a count for each priority of each queue, by the queue's prefix.
type countsByQueue map[string]map[int64]int64

// knownCounts is what a Batcher knows of the next counts, so that its pushes need not read the last
// items of their priorities, twice each. Counts that are too high do no harm: the order stays the same. So
// nothing has to be forgotten when items are taken.
type knownCounts struct {
	counts countsByQueue
	size   int // at least the number of counts
}

// maxKnownCounts bounds knownCounts: some use each priority once.
const maxKnownCounts = 4096

// learnCounts takes the counts after the operations of a transaction.
func (t *txOps) learnCounts() {
	if !t.known.any() {
		return
	}
	k := &t.known.counts
	if !t.onlyPushesAdd() {
		k.counts, k.size = nil, 0 // t.nextCounts too is from before them
		return
	}
	if k.size > maxKnownCounts {
		k.counts, k.size = nil, 0
	}
	if k.counts == nil {
		k.counts = countsByQueue{}
	}
	for queue, next := range t.nextCounts {
		known := k.counts[queue]
		if known == nil {
			k.counts[queue] = next
			k.size += len(next)
			continue
		}
		for priority, count := range next {
			known[priority] = count
		}
		k.size += len(next)
	}
}

// onlyPushesAdd reports whether every count that came into use, or into use again, is below those in
// t.nextCounts, or below those that were known before.
func (t *txOps) onlyPushesAdd() bool {
	for i := range t.ops {
		switch t.ops[i].Kind {
		case OpRestore, OpMove, OpRedrive:
			return false
		}
	}
	for _, q := range t.queues {
		if q.ledger.strays {
			return false
		}
	}
	return len(t.dead.queues) == 0
}
