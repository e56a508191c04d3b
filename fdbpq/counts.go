package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// learnCounts takes the counts after the operations of a transaction.
func (t *txOps) learnCounts() {
	if !t.known.Any() {
		return
	}

	k := &t.known.Counts
	if !t.onlyPushesAdd() {
		k.Counts, k.Size = nil, 0 // nextCounts too is from before them
		return
	}
	if k.Size > state.MaxKnownCounts {
		k.Counts, k.Size = nil, 0
	}

	if k.Counts == nil {
		k.Counts = state.CountsByQueue{}
	}
	for queue, next := range t.pushes.nextCounts {
		known := k.Counts[queue]
		if known == nil {
			k.Counts[queue] = next
			k.Size += len(next)
			continue
		}
		for priority, count := range next {
			known[priority] = count
		}
		k.Size += len(next)
	}
}

// onlyPushesAdd reports whether every count that came into use, or into use again, is below those
// in pushes.nextCounts, or below those that were known before.
func (t *txOps) onlyPushesAdd() bool {
	for i := range t.ops {
		switch t.ops[i].Kind {
		case OpRestore, OpMove, OpRedrive:
			return false
		}
	}
	for _, q := range t.queues {
		if q.ledger.Strays {
			return false
		}
	}
	return len(t.dead.Queues) == 0
}
