package fdbpq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A receipt's value is the tuple (microseconds, number of the attempt, number of
// popped items that were put back). A receipt of attempt settledAttempt was
// written to say that the batch is over.
const settledAttempt = 0

// unsettled is a batch that was given up while its outcome was unknown.
type unsettled struct {
	receipt []byte
	popped  map[int64][]takenItem // what each attempt would have popped
}

// writeReceipt writes the receipt of an attempt and makes attempts that carry
// the same receipt conflict with each other.
func (b *Batcher) writeReceipt(tx kv.Transaction, receipt []byte, attempt int64, back int) {
	tx.AddReadConflict(kv.SingleKey(receipt))
	tx.Set(receipt, tuple.Tuple{b.now().UnixMicro(), attempt, back}.Pack())
}

// committedAttempt returns the attempt that the receipt says was committed,
// nil if none was.
func committedAttempt(r kv.Reader, receipt []byte, attempts []unknownAttempt) (*unknownAttempt, error) {
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

func parseReceipt(value []byte) (at time.Time, number, back int64, err error) {
	micros, rest, err := tuple.DecodeInt(value)
	if err == nil {
		number, rest, err = tuple.DecodeInt(rest)
	}
	if err == nil {
		back, _, err = tuple.DecodeInt(rest)
	}
	if err != nil {
		return at, 0, 0, fmt.Errorf("%w: receipt %x: %w", ErrCorrupt, value, err)
	}
	return time.UnixMicro(micros), number, back, nil
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
	page := MaxMessageSize
	for {
		b.mu.Lock()
		if len(b.mu.unsettled) == 0 {
			b.mu.Unlock()
			return nil
		}
		u := b.mu.unsettled[0]
		b.mu.Unlock()

		done, err := kv.TransactIdempotent(ctx, b.db, func(tx kv.Transaction) (bool, error) {
			return b.settle(tx, u, page)
		})
		if errors.Is(err, kv.ErrTooLarge) && page > 1 {
			page /= 2
			continue
		}
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		b.mu.Lock()
		b.mu.unsettled = b.mu.unsettled[1:]
		b.mu.obsolete = append(b.mu.obsolete, u.receipt)
		b.mu.Unlock()
	}
}

// settle makes one step, which the receipt records, so that it is made once
// even if its own commit ends without an answer. What was popped may be too
// large to be put back in one transaction: about page bytes of it are. done
// says that this was the last step.
func (b *Batcher) settle(tx kv.Transaction, u unsettled, page int) (done bool, err error) {
	value, err := tx.Get(u.receipt).Get()
	if err != nil {
		return false, err
	}
	var number, back int64
	if value != nil {
		if _, number, back, err = parseReceipt(value); err != nil {
			return false, err
		}
	}
	items := u.popped[number] // none if no attempt was committed
	end := restoreSome(tx, items, int(back), page, b.now())
	if end < len(items) {
		b.writeReceipt(tx, u.receipt, number, end)
		return false, nil
	}
	b.writeReceipt(tx, u.receipt, settledAttempt, 0)
	return true, nil
}

// restoreOverhead is about the bytes of a transaction that an item needs
// besides what is stored of it: for ranges of conflicts, and to be counted.
// Keys that are long need more.
const restoreOverhead = 500

// restoreSome writes items from begin on back under their old keys, about page
// bytes of them but at least one, and returns the end of those.
func restoreSome(tx kv.Transaction, items []takenItem, begin, page int, now time.Time) (end int) {
	ledgers := make(map[*layout]*ledger)
	size := 0
	for end = begin; end < len(items); end++ {
		l := items[end].l
		size += items[end].size() + restoreOverhead
		if size > page && end > begin {
			break
		}
		g := ledgers[l]
		if g == nil {
			g = &ledger{tx: tx, l: l, now: now}
			ledgers[l] = g
		}
		g.restore(items[end].stored)
	}
	for _, g := range ledgers {
		g.flush()
	}
	return end
}

// sweepPage is how many receipts SweepReceipts looks at in one transaction.
const receiptPage = 1000

// SweepReceipts removes the receipts that Batchers of dead processes left
// behind and that are older than age. Age must be longer than any batch may
// take, so hours rather than seconds.
func SweepReceipts(ctx context.Context, db kv.Database, k *Keyspace, age time.Duration) error {
	limit := time.Now().Add(-age)
	todo := within(k.receipts.Bytes())
	for {
		last, err := kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) ([]byte, error) {
			return sweepReceipts(tx, todo, limit)
		})
		if err != nil || last == nil {
			return err
		}
		todo.Begin = kv.SingleKey(last).End
	}
}

// sweepPageOf returns the last key of a full page, nil if it was the last page.
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
