package migrate

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// copyBytes is about how much is copied in one transaction. FoundationDB advises against more.
const copyBytes = 1_000_000

// copyPage is how much is read at once.
var copyPage = kv.RangeOptions{Limit: 2000, Bytes: copyBytes}

// scan calls fn with all pairs of a range, in order, and reads each page in a transaction.
func scan(ctx context.Context, db kv.Database, r kv.Range, fn func([]kv.KeyValue) error) error {
	for {
		pairs, err := kv.ReadTransact(ctx, db, func(reader kv.Reader) ([]kv.KeyValue, error) {
			return reader.GetRange(r, copyPage).Get()
		})
		if err == nil {
			err = fn(pairs)
		}
		if err != nil || !copyPage.Full(pairs) {
			return err
		}
		r.Begin = kv.SingleKey(pairs[len(pairs)-1].Key).End
	}
}
