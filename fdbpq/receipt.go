package fdbpq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The value of a receipt is the tuple (microseconds, number of the attempt, number of
// items restored so far).
const (
	// settledAttempt is the attempt once the batch is settled.
	settledAttempt = 0
	// noAttempt is the attempt while the restores of a batch are made up for of which no
	// attempt has committed.
	noAttempt = -1
)

// unsettled is a batch that ended with an unknown outcome.
type unsettled struct {
	receipt []byte
	// restore is what to restore, by the attempt that has committed: what it popped. If
	// none has, it is what the batch was to restore.
	restore map[int64][]state.TakenItem
	// removed is what left the queues in it, by the attempt that has committed.
	removed map[int64]Removed
	// gone is what left the queues in it, with -1, and in settling it, with the index that the step
	// began at. Each step commits once, so the last attempt of it counts.
	gone map[int64]Removed
}

// writeReceipt writes the receipt of an attempt, and makes all attempts with the same
// receipt conflict with each other.
func (b *Batcher) writeReceipt(tx kv.Transaction, receipt []byte, attempt int64, restored int) {
	tx.AddReadConflict(kv.SingleKey(receipt))
	tx.Set(receipt, tuple.Tuple{b.now().UnixMicro(), attempt, restored}.Pack())
}

// committedAttempt returns the attempt that has committed according to the receipt, nil if
// none has.
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

// Settle resolves the batches of unknown outcome. If such a batch has not committed, Settle
// makes sure that it never will, but restores what its restores were to restore. If it has,
// Settle restores the items that it popped to their old places, since nobody received them;
// its pushes and restores stay. Start settles before it
// does anything else, so call Settle only to have items back before the next batch. It
// retries until ctx ends, and does nothing if there is nothing to settle.
//
// The goroutine that calls Start calls Settle.
func (b *Batcher) Settle(ctx context.Context) error {
	budget := MaxMessageSize
	for {
		b.mu.Lock()
		if len(b.mu.unsettled) == 0 {
			b.mu.Unlock()
			return nil
		}
		u := b.mu.unsettled[0]
		b.mu.Unlock()

		done, err := kv.TransactIdempotent(ctx, state.Shrinking{Database: b.db}, func(tx kv.Transaction) (bool, error) {
			return b.settle(tx, u, budget)
		})
		if errors.Is(err, kv.ErrTooLarge) && budget > 1 {
			budget /= 2
			continue
		}
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		for _, n := range u.gone {
			b.removed.Add(n)
		}
		b.mu.Lock()
		b.mu.unsettled = b.mu.unsettled[1:]
		b.mu.obsolete = append(b.mu.obsolete, u.receipt)
		b.mu.Unlock()
	}
}

// settle restores about budget bytes of items, since all of them may be too large for one
// transaction, and reports whether that was all. The receipt records each step, so that it
// is done once even if its own commit has an unknown outcome.
func (b *Batcher) settle(tx kv.Transaction, u unsettled, budget int) (done bool, err error) {
	value, err := tx.Get(u.receipt).Get()
	if err != nil {
		return false, err
	}
	number, restored := int64(noAttempt), int64(0)
	if value != nil {
		if _, number, restored, err = parseReceipt(value); err != nil {
			return false, err
		}
	}
	if number == settledAttempt {
		return true, nil
	}
	items := u.restore[number]
	next, removed, err := restoreSome(tx, items, int(restored), budget, b.now())
	if err != nil {
		return false, err
	}
	u.gone[-1], u.gone[restored] = u.removed[number], removed
	if next < len(items) {
		b.writeReceipt(tx, u.receipt, number, next)
		return false, nil
	}
	b.writeReceipt(tx, u.receipt, settledAttempt, 0)
	return true, nil
}

// restoreSome restores items from index next on, unless they are in their queues: about budget
// bytes, but at least one. It returns the index of the first that it left, and what has left the
// queues.
func restoreSome(tx kv.Transaction, items []state.TakenItem, next, budget int, now time.Time) (end int, removed Removed, err error) {
	var reads []state.Occupied
	end = next
	for size := 0; end < len(items); end++ {
		i := &items[end]
		if size += i.RestoreSize(); size > budget && end > next {
			break
		}
		reads = append(reads, state.ReadOccupied(i.L, tx, &i.ID))
	}
	ledgers := make(map[*codec.Layout]*state.Ledger)
	for n := range reads {
		i := &items[next+n]
		if err := reads[n].Check(&i.ID); errors.Is(err, ErrExists) {
			continue
		} else if err != nil {
			return next, removed, err
		}
		g := ledgers[i.L]
		if g == nil {
			g = &state.Ledger{Tx: tx, L: i.L, Now: now}
			ledgers[i.L] = g
		}
		if err := g.Restore(i.Item); err != nil {
			return next, removed, err
		}
	}
	for _, g := range ledgers {
		if err := g.Flush(); err != nil {
			return next, removed, err
		}
		removed.Add(g.Removed)
	}
	return end, removed, nil
}

// newReceipts returns the keys of receipts that nobody else uses.
func (k *Keyspace) newReceipts() tuple.Subspace {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never returns an error: see crypto/rand
	return k.s.Receipts.Sub(id)
}

// receiptPage is how many receipts SweepReceipts reads in one transaction.
const receiptPage = 1000

// SweepReceipts removes receipts older than age, which Batchers of dead processes left
// behind. Age must be longer than any batch can take: hours rather than seconds.
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

// sweepReceipts sweeps one page. It returns the last key of a full page, nil after the last
// page.
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
