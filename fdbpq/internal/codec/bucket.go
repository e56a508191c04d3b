package codec

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A queue with Settings.Rate, or with RatePerGroup, keeps account of deliveries:
//
//	("q")       = (time)      when the queue may have a full burst again, in nanoseconds
//	("q", hash) = (time)      the same of a group
//
// Each delivery moves that time on. A row falls due then, see due.go, because it says nothing any more.
// A change of the settings removes rows and leaves their entries of the time index. Those may stand
// for no row, or for one with another time.

// KindBucket is the kind of these keys.
const KindBucket = "q"

// BucketKey is the key of a group or, for NotIndexed, of the queue.
func (l *Layout) BucketKey(hash GroupHash) []byte {
	if hash == NotIndexed {
		return l.Key(KindBucket, 0)
	}
	return tuple.AppendInt(l.Key(KindBucket, 8), int64(hash))
}

// ParseBucketKey returns the group of a BucketKey of one.
func (l *Layout) ParseBucketKey(key []byte) (GroupHash, error) {
	d := decoder{rest: l.Place(key)}
	hash := GroupHash(d.int())
	return hash, d.end()
}

// GroupBuckets is the range of the keys of groups.
func (l *Layout) GroupBuckets() kv.Range { return l.KindRange(KindBucket) }

// BucketRowDue is when a row with that value falls due.
func BucketRowDue(value []byte) time.Time { return BucketDue(ParseCount(value, 0)) }

// BucketDue is when a row with that time falls due: not before it, to the microsecond.
func BucketDue(full int64) time.Time { return Micros(time.Unix(0, full+int64(time.Microsecond)-1)) }
