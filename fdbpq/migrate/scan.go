package migrate

import (
	"context"
	"sync"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// copyBytes is about how much is copied in one transaction. FoundationDB advises against more.
const copyBytes = 1_000_000

// copyPage is how much is read at once.
var copyPage = kv.RangeOptions{Limit: 200, Bytes: copyBytes}

// scan calls fn with all pairs of a range, in order. It reads on while fn runs, in a transaction
// for each page.
func scan(ctx context.Context, db kv.Database, r kv.Range, fn func([]kv.KeyValue) error) error {
	type page struct {
		pairs []kv.KeyValue
		err   error
	}
	pages := make(chan page)

	var reading sync.WaitGroup
	defer reading.Wait()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	reading.Go(func() {
		defer close(pages)
		for {
			pairs, err := kv.ReadTransact(ctx, db, func(reader kv.Reader) ([]kv.KeyValue, error) {
				return reader.GetRange(r, copyPage).Get()
			})
			select {
			case pages <- page{pairs, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || !copyPage.Full(pairs) {
				return
			}
			r.Begin = kv.SingleKey(pairs[len(pairs)-1].Key).End
		}
	})

	for p := range pages {
		if p.err != nil {
			return p.err
		}
		if err := fn(p.pairs); err != nil {
			return err
		}
	}

	return ctx.Err()
}
