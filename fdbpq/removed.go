package fdbpq

// Removed is how many items left their queues although no operation took or removed them.
type Removed struct {
	Expired   int64 // because they had expired
	Discarded int64 // because of DiscardOld
	Dead      int64 // because they moved to a dead-letter queue
}

func (r *Removed) add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
}

// Removed returns which items the batch removed. Call it after Wait, also after an error.
func (p *Pending) Removed() Removed {
	all := p.caughtUp.removed
	if p.err == nil {
		all.add(p.removed)
	}
	return all
}
