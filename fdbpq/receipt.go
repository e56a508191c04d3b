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
// items restored so far). Attempts are counted from 1.
const (
	// settledAttempt marks a batch that is settled.
	settledAttempt = 0
	// noAttempt marks a batch none of whose attempts committed, while Settle makes its restores.
	noAttempt = -1
)

// writeReceipt writes the receipt of an attempt, and makes all attempts with the same receipt
// conflict with each other.
func writeReceipt(tx kv.Transaction, receipt []byte, now time.Time, attempt int64, restored int) {
	tx.AddReadConflict(kv.SingleKey(receipt))
	tx.Set(receipt, tuple.Tuple{now.UnixMicro(), attempt, restored}.Pack())
}

// attempt is an attempt at a batch whose commit has started.
type attempt struct {
	number  int64
	results []Result
	popped  []state.TakenItem
	removed Removed
}

// committedAttempt returns the attempt that has committed according to the receipt, nil if none
// has.
func committedAttempt(r kv.Reader, receipt []byte, attempts []attempt) (*attempt, error) {
	value, err := r.Get(receipt).Get()
	if err != nil || value == nil {
		return nil, err
	}

	_, number, _, err := parseReceipt(value)
	if err != nil {
		return nil, err
	}
	for i := range attempts {
		if attempts[i].number == number {
			return &attempts[i], nil
		}
	}
	return nil, nil
}

func parseReceipt(value []byte) (at time.Time, number, restored int64, err error) {
	micros, rest, err := tuple.DecodeInt(value)
	if err == nil {
		number, rest, err = tuple.DecodeInt(rest)
	}
	if err == nil {
		restored, _, err = tuple.DecodeInt(rest)
	}
	if err != nil {
		return at, 0, 0, fmt.Errorf("%w: receipt %x: %w", ErrCorrupt, value, err)
	}
	return time.UnixMicro(micros), number, restored, nil
}

// newReceipts returns the keys of receipts that nobody else uses.
func (k *Keyspace) newReceipts() tuple.Subspace {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never returns an error: see crypto/rand
	return k.s.Receipts.Sub(id)
}

// receiptPage is how many receipts SweepReceipts reads in one transaction.
const receiptPage = 1000

// SweepReceipts removes receipts older than age, which Batchers of dead processes left behind. Age
// must be longer than any batch can take: hours rather than seconds.
//
// Errors: ErrCorrupt, those of the store, and the context's error.
func SweepReceipts(ctx context.Context, db kv.Database, k *Keyspace, age time.Duration) error {
	limit := time.Now().Add(-age)
	todo := codec.Within(k.s.Receipts.Bytes())
	for {
		last, err := kv.TransactIdempotent(ctx, state.Shrinking{Database: db}, func(tx kv.Transaction) ([]byte, error) {
			return sweepReceipts(tx, todo, limit)
		})
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
