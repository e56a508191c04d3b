package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// Bucket is how many deliveries a rate still allows a queue or a group, in one transaction. It is as
// a bucket with Count tokens, to which one comes in each Interval: over any time d at most
// Count + d/Interval deliveries. It needs to know only when it will be full again.
type Bucket struct {
	rate   settings.Rate
	hash   codec.GroupHash // codec.NotIndexed for that of the queue
	value  kv.Future[[]byte]
	stored int64 // nanoseconds, 0 if there is no row
	full   int64 // the same with the deliveries of the transaction
	loaded bool
	taken  bool
}

// NewBucket returns the bucket of a group or, for codec.NotIndexed, of the queue. Its row is read
// without conflict, until something is taken.
func NewBucket(hash codec.GroupHash, rate settings.Rate, row kv.Future[[]byte]) *Bucket {
	return &Bucket{rate: rate, hash: hash, value: row}
}

// Next returns when the next delivery may be, to the microsecond; the zero time if that is now. The
// error is one of the store.
func (b *Bucket) Next(now time.Time) (time.Time, error) {
	if !b.loaded {
		row, err := b.value.Get()
		if err != nil {
			return time.Time{}, err
		}
		b.stored, b.loaded = codec.ParseCount(row, 0), true
		b.full = b.stored
	}

	interval := int64(b.rate.Interval())
	if at := b.full - (b.rate.Count-1)*interval; at > now.UnixNano() {
		return codec.BucketDue(at), nil
	}
	return time.Time{}, nil
}

// Take counts a delivery, after Next.
func (b *Bucket) Take(now time.Time) {
	b.full = max(b.full, now.UnixNano()) + int64(b.rate.Interval())
	b.taken = true
}

// Write writes what Take has counted. The transaction conflicts with others that do.
func (b *Bucket) Write(g *Ledger) {
	if !b.taken {
		return
	}
	key := g.L.BucketKey(b.hash)
	g.Tx.AddReadConflict(kv.SingleKey(key)) // before it is written: see kv.Transaction
	if b.stored > 0 {
		g.Tx.Clear(g.L.DueKey(codec.BucketDue(b.stored), key))
	}

	at := codec.BucketDue(b.full)
	SetUntil(g.L, g.Tx, at, key, codec.EncodeCount(b.full))
	g.noteDue(at)
	b.stored, b.taken = b.full, false
}

// ResetBuckets removes the rows of the queue, or those of all groups, because the rate has changed.
func (g *Ledger) ResetBuckets(ofGroups bool) {
	if ofGroups {
		g.Tx.ClearRange(g.L.GroupBuckets())
		return
	}
	g.Tx.Clear(g.L.BucketKey(codec.NotIndexed))
}
