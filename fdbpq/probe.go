package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Probe tests whether the store accepts writes that make it larger, as pushes do. It writes
// a receipt without a batch, always the same one, which SweepReceipts removes.
//
// Errors: those of the store, and the context's error.
func Probe(ctx context.Context, db kv.Database, k *Keyspace) error {
	key := k.s.Receipts.Pack(tuple.Tuple{"probe"})
	return kv.UpdateIdempotent(ctx, db, func(tx kv.Transaction) error {
		tx.Set(key, tuple.Tuple{time.Now().UnixMicro(), settledAttempt, 0}.Pack())
		return nil
	})
}
