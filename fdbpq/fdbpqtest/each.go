package fdbpqtest

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Each calls tell for all items of a queue in a state, in order.
func Each(
	ctx context.Context, db kv.Database, q fdbpq.Target, state fdbpq.ItemState,
	tell func(*fdbpq.Browsed),
) (err error) {
	walk, end := fdbpq.Browse{State: state}, fdbpq.BrowseEnd{More: true}
	for err == nil && end.More {
		end, err = walk.Walk(ctx, db, q, time.Now(), func(i *fdbpq.Browsed) bool {
			tell(i)
			return true
		})
		walk.After, walk.AfterTime = &end.Last, end.LastTime
	}
	return err
}
