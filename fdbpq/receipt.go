package fdbpq

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The value of a receipt is the tuple (microseconds, number of the attempt that wrote it, number of
// items restored so far). Attempts are counted from 1. Two numbers say more about a batch of
// unknown outcome:
const (
	settledAttempt = 0  // it is settled
	noAttempt      = -1 // no attempt committed, and Settle makes the restores of the batch
)

// writeReceipt writes the receipt of an attempt, and makes all attempts with the same receipt
// conflict with each other.
func writeReceipt(tx kv.Transaction, receipt []byte, now time.Time, attempt int64, restored int) {
	tx.AddReadConflict(kv.SingleKey(receipt))
	tx.Set(receipt, tuple.Tuple{now.UnixMicro(), attempt, restored}.Pack())
}

func parseReceipt(value []byte) (at time.Time, number, restored int64, err error) {
	var elements [3]int64
	rest := value
	for i := range elements {
		if elements[i], rest, err = tuple.DecodeInt(rest); err != nil {
			return at, 0, 0, fmt.Errorf("%w: receipt %x: %w", ErrCorrupt, value, err)
		}
	}
	return time.UnixMicro(elements[0]), elements[1], elements[2], nil
}

// newReceipts returns keys of receipts that no other Batcher uses.
func (k *Keyspace) newReceipts() tuple.Subspace {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return k.s.Receipts.Sub(id)
}

// receiptPage is how many receipts SweepReceipts reads in one transaction.
const receiptPage = 1000

// SweepReceipts removes receipts older than age, which Batchers of dead processes left behind. The
// age must be longer than any batch can take: hours rather than seconds. Concurrent calls do no
// harm.
//
// Errors: ErrCorrupt, errors of the store, and the context's error.
func SweepReceipts(ctx context.Context, db kv.Database, k *Keyspace, age time.Duration) error {
	limit := time.Now().Add(-age)
	todo := codec.Within(k.s.Receipts.Bytes())
	for {
		sweep := func(tx kv.Transaction) ([]byte, error) { return sweepReceipts(tx, todo, limit) }
		last, err := kv.TransactIdempotent(ctx, state.Shrinking{Database: db}, sweep)
		if err != nil || last == nil {
			return err
		}
		todo.Begin = kv.SingleKey(last).End
	}
}

// sweepReceipts sweeps one page. It returns the last key of a full page, nil after the last page.
func sweepReceipts(tx kv.Transaction, todo kv.Range, limit time.Time) (last []byte, err error) {
	pairs, err := tx.Snapshot().GetRange(todo, kv.RangeOptions{Limit: receiptPage}).Get()
	if err != nil {
		return nil, err
	}

	for _, pair := range pairs {
		at, _, _, err := parseReceipt(pair.Value)
		if err != nil {
			return nil, err
		}
		if at.Before(limit) {
			tx.Clear(pair.Key)
		}
	}

	if len(pairs) < receiptPage {
		return nil, nil
	}
	return pairs[len(pairs)-1].Key, nil
}

// Probe tests whether the store accepts writes that make it larger, as pushes do. It writes a
// receipt that belongs to no batch, always the same one, which SweepReceipts removes.
//
// Errors of the store, and the context's error.
func Probe(ctx context.Context, db kv.Database, k *Keyspace) error {
	key := k.s.Receipts.Pack(tuple.Tuple{"probe"})
	return kv.UpdateIdempotent(ctx, db, func(tx kv.Transaction) error {
		tx.Set(key, tuple.Tuple{time.Now().UnixMicro(), settledAttempt, 0}.Pack())
		return nil
	})
}
