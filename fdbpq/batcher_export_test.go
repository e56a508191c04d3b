package fdbpq

import "time"

// SetNow gives b another clock.
func (b *Batcher) SetNow(now func() time.Time) { b.now = now }

// ListedLife is how long a push relies on an earlier one for its queue to be listed.
const ListedLife = listedLife
