package fdbpq

// learnCounts takes the counts after the operations of a transaction.
func (t *txOps) learnCounts() {
	if t.known.Any() {
		t.known.LearnCounts(t.pushes.nextCounts, t.onlyPushesAdd())
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
		if q.ledger.Strays() {
			return false
		}
	}
	return !t.dead.Any()
}
