package due

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// fullBucket is the row of a rate that allows a full burst again: see state.Bucket.
type fullBucket struct {
	dueRecord
	due   *Due
	value kv.Future[[]byte]
}

// removeBuckets removes rows that say nothing any more, with their entries. An entry whose row has
// another time goes alone.
func removeBuckets(all []*fullBucket) error {
	for _, b := range all {
		value, err := b.value.Get()
		if err != nil {
			return err
		}

		g := b.due.Ledger
		if value != nil && bytes.Equal(g.L.DueKey(codec.BucketDue(codec.ParseCount(value, 0)), b.key), b.entry) {
			g.Tx.Clear(b.key)
		}
		g.Tx.Clear(b.entry)
		b.due.Done = true
	}
	return nil
}
