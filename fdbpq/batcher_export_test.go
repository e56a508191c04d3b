package fdbpq

import "time"

// SetNow gives b another clock.
func (b *Batcher) SetNow(now func() time.Time) { b.now = now }
