package fdbpq

import (
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A receipt's value is the tuple (microseconds, number of the attempt). A
// receipt of attempt settledAttempt was written to say that the batch is over.
const settledAttempt = 0

// unsettled is a batch that was given up while its outcome was unknown.
type unsettled struct {
	receipt  []byte
	ops      []Op
	attempts []attempt
}

// writeReceipt writes the receipt of an attempt and makes attempts that carry
// the same receipt conflict with each other.
func (b *Batcher) writeReceipt(tx kv.Transaction, receipt []byte, attempt int64) {
	tx.AddReadConflict(kv.SingleKey(receipt))
	tx.Set(receipt, tuple.Tuple{b.now().UnixMicro(), attempt}.Pack())
}

// committedAttempt returns the attempt that the receipt says was committed,
// nil if none was.
func committedAttempt(r kv.Reader, receipt []byte, attempts []attempt) (*attempt, error) {
	value, err := r.Get(receipt).Get()
	if err != nil || value == nil {
		return nil, err
	}
	_, number, err := parseReceipt(value)
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

func parseReceipt(value []byte) (at time.Time, number int64, err error) {
	micros, rest, err := tuple.DecodeInt(value)
	if err == nil {
		number, _, err = tuple.DecodeInt(rest)
	}
	if err != nil {
		return at, 0, fmt.Errorf("%w: receipt %x: %w", ErrCorrupt, value, err)
	}
	return time.UnixMicro(micros), number, nil
}

// Settle resolves the batches whose outcome is unknown: it makes sure that
// such a batch will not be committed any more, or, if it was committed, puts
// back at their old places the items it popped, since nobody was given them.
// Pushes stay. Start settles by itself before it does anything else; call
// Settle to have items back without waiting for the next batch. It retries
// until ctx ends, and does nothing when there is nothing to settle.
//
// It is called by the goroutine that calls Start.
func (b *Batcher) Settle(ctx context.Context) error {
	for {
		b.mu.Lock()
		if len(b.mu.unsettled) == 0 {
			b.mu.Unlock()
			return nil
		}
		u := b.mu.unsettled[0]
		b.mu.Unlock()

		_, err := kv.TransactIdempotent(ctx, b.db, func(tx kv.Transaction) (struct{}, error) {
			return struct{}{}, b.settle(tx, u)
		})
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.mu.unsettled = b.mu.unsettled[1:]
		b.mu.answered = append(b.mu.answered, u.receipt)
		b.mu.Unlock()
	}
}

func (b *Batcher) settle(tx kv.Transaction, u unsettled) error {
	committed, err := committedAttempt(tx, u.receipt, u.attempts)
	if err != nil {
		return err
	}
	if committed != nil {
		putBack(tx, u.ops, committed.results)
	}
	b.writeReceipt(tx, u.receipt, settledAttempt)
	return nil
}

// putBack writes the items that results popped back under their old keys.
func putBack(tx kv.Transaction, ops []Op, results []Result) {
	for _, q := range group(ops, make([]Result, len(ops))) {
		for _, places := range [][]int{q.popMins, q.popMaxs} {
			for _, i := range places {
				if results[i].Err != nil {
					continue
				}
				item := &results[i].Item
				q.l.put(tx, &item.ID, &item.Message)
				q.changed(&item.ID, 1)
			}
		}
		q.count(tx)
	}
}

// sweepPage is how many receipts SweepReceipts looks at in one transaction.
const sweepPage = 1000

// SweepReceipts removes the receipts that Batchers of dead processes left
// behind and that are older than age. Age must be longer than any batch may
// take, so hours rather than seconds.
func SweepReceipts(ctx context.Context, db kv.Database, k *Keyspace, age time.Duration) error {
	limit := time.Now().Add(-age)
	todo := within(k.receipts().Bytes())
	for {
		last, err := kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) ([]byte, error) {
			return sweepPageOf(tx, todo, limit)
		})
		if err != nil || last == nil {
			return err
		}
		todo.Begin = kv.SingleKey(last).End
	}
}

// sweepPageOf returns the last key of a full page, nil if it was the last page.
func sweepPageOf(tx kv.Transaction, todo kv.Range, limit time.Time) (last []byte, err error) {
	pairs, err := tx.Snapshot().GetRange(todo, kv.RangeOptions{Limit: sweepPage}).Get()
	if err != nil {
		return nil, err
	}
	for _, pair := range pairs {
		at, _, err := parseReceipt(pair.Value)
		if err != nil {
			return nil, err
		}
		if at.Before(limit) {
			tx.Clear(pair.Key)
		}
	}
	if len(pairs) < sweepPage {
		return nil, nil
	}
	return pairs[len(pairs)-1].Key, nil
}
