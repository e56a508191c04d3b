package fdbpq

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queueRestores is the restores of one queue. They run before the pops, which get what they put
// back.
type queueRestores struct {
	*queueTxn
	indexes []int // into txn.ops
	reads   []state.Lookup
}

// restores is those of all queues.
type restores []*queueRestores

// run finds out which items are in their queues, and puts the others back.
func (r restores) run() error {
	for _, q := range r {
		q.ledger.BeginSettings()
		for _, i := range q.indexes {
			q.reads = append(q.reads, state.LookUp(q.l, q.tx, &q.ops[i].Item.ID))
		}
	}
	return each(r, (*queueRestores).finish)
}

func (q *queueRestores) finish() error {
	done := map[ID]bool{} // their reads are stale
	for n, i := range q.indexes {
		item, read := q.ops[i].Item, &q.reads[n]
		if done[item.ID] {
			*read = state.LookUp(q.l, q.tx, &item.ID)
		}
		done[item.ID] = true

		err := read.WantFree(&item.ID)
		switch {
		case errors.Is(err, ErrExists):
			q.results[i].Err = err
		case err != nil:
			return err
		default:
			if err := q.failOps(q.ledger.Restore(item), i); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoresOf returns the items that the operations are to restore.
func restoresOf(ops []Op) (items []state.TakenItem) {
	for i := range ops {
		if op := &ops[i]; op.Kind == OpRestore && op.check(op.Queue.Layout()) == nil {
			item := *op.Item // the caller's
			items = append(items, state.TakenItem{L: op.Queue.Layout(), Item: &item})
		}
	}
	return items
}

// unsettled is a batch that ended with an unknown outcome. Its maps are by the attempt that has
// committed, as the receipt says.
type unsettled struct {
	receipt []byte
	restore map[int64][]state.TakenItem // what the attempt popped; at noAttempt, the batch's own restores
	removed map[int64]Removed           // what left the queues in the attempt

	// gone is what left the queues in the attempt, at -1, and in settling it, at the index of the
	// item that the step began with. A step that is repeated counts once.
	gone map[int64]Removed
	// at is when the batch ended. All attempts to settle it go by that time, so that whichever of them
	// commits, the same items have expired.
	at time.Time
}

// Settle resolves the batches of unknown outcome. If such a batch has not committed, Settle makes
// sure that it never will, but makes its restores. If it has, Settle puts the items that it popped
// back to their old places, since nobody received them; its pushes and restores stay.
//
// Start settles before it does anything else, so call Settle only to have items back before the
// next batch. It retries until ctx ends, and does nothing if there is nothing to settle. The
// goroutine that calls Start calls Settle.
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

		b.mu.Lock()
		for _, n := range u.gone {
			b.mu.removed.Add(n)
		}
		b.mu.unsettled = b.mu.unsettled[1:]
		b.mu.obsolete = append(b.mu.obsolete, u.receipt)
		b.mu.Unlock()
	}
}

// settle restores about budget bytes of items, since all of them may be too large for one
// transaction, and reports whether that was all. The receipt records each step, so that it is done
// once even if its own commit has an unknown outcome.
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
	next, removed, err := restoreSome(tx, items, int(restored), budget, u.at)
	if err != nil {
		return false, err
	}
	u.gone[-1], u.gone[restored] = u.removed[number], removed
	if next < len(items) {
		writeReceipt(tx, u.receipt, b.now(), number, next)
		return false, nil
	}
	writeReceipt(tx, u.receipt, b.now(), settledAttempt, 0)
	return true, nil
}

// restoreSome restores items from index next on, unless they are in their queues: about budget
// bytes, but at least one. It returns the index of the first that it left, and what has left the
// queues.
func restoreSome(tx kv.Transaction, items []state.TakenItem, next, budget int, now time.Time) (end int, removed Removed, err error) {
	var reads []state.Lookup
	end = next
	for size := 0; end < len(items); end++ {
		i := &items[end]
		if size += i.RestoreSize(); size > budget && end > next {
			break
		}
		reads = append(reads, state.LookUp(i.L, tx, &i.ID))
	}

	ledgers := make(map[*codec.Layout]*state.Ledger)
	for n := range reads {
		i := &items[next+n]
		g := ledgers[i.L]
		if g == nil {
			ledger := state.NewLedger(tx, i.L, now, nil)
			g = &ledger
			ledgers[i.L] = g
		}

		err := reads[n].WantFree(&i.ID)
		if err == nil {
			err = g.Restore(i.Item)
		}
		if err != nil && !errors.Is(err, ErrExists) {
			return next, removed, err
		}
	}

	for _, g := range ledgers {
		if err := g.Flush(); err != nil {
			return next, removed, err
		}
		removed.Add(g.Removed())
	}
	return end, removed, nil
}
