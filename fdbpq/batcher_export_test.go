package fdbpq

import "time"

// SetNow gives b another clock.
func (b *Batcher) SetNow(now func() time.Time) { b.now = now }

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed.
const ListedLife = listedLife
