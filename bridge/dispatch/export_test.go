package dispatch

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// SaveTrafficNow is a step of SaveTraffic.
func (d *Dispatcher) SaveTrafficNow(ctx context.Context) {
	d.saver.mu.Lock()
	defer d.saver.mu.Unlock()
	d.saver.mu.open = true
	d.saver.step(ctx, false)
}

// Count counts items as a batch does.
func (d *Dispatcher) Count(q *Queue, n subjects.Traffic) {
	defer d.traffic.lock(d.options.Now()).mu.Unlock()
	d.traffic.countLocked(q, n)
}
