package fdbpq

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// waitToRetry waits before the next attempt after err. It returns false, and ends the batch, if
// there must not be one.
func (p *Pending) waitToRetry(err error) bool {
	if errors.Is(err, kv.ErrBlind) && !p.notBlind {
		p.notBlind = true
		if !p.pushes {
			p.batcher.seeing.Store(afterBlind)
		}
		return true
	}
	if !kv.Retryable(err) && !kv.MaybeCommitted(err) {
		p.complete(err)
		return false
	}
	if errors.Is(err, kv.ErrConflict) {
		p.batcher.conflicts.Add(1)
	}

	if ended := p.backoff.Wait(p.ctx); ended != nil {
		p.complete(fmt.Errorf("%w after: %w", ended, err))
		return false
	}
	return true
}

// endAsBefore ends the batch with the results of an earlier attempt of unknown outcome, if the
// receipt says that one has committed.
func (p *Pending) endAsBefore(tx kv.Transaction) (ended bool, err error) {
	value, err := tx.Get(p.receipt).Get()
	if err != nil || value == nil {
		return false, err
	}
	_, number, _, err := parseReceipt(value)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(p.unknown, func(a *txOps) bool { return a.attempt == number })
	if at < 0 {
		return false, nil
	}

	// Its writes may not be durable yet: a transaction can read them before.
	if _, err := tx.Commit().Get(); err != nil {
		return false, err
	}
	p.last = p.unknown[at]
	p.complete(nil)
	return true, nil
}

// unsettled is a batch that ended with an unknown outcome. Its maps are by the number of the
// attempt that has committed, as the receipt says.
type unsettled struct {
	receipt []byte
	restore map[int64][]state.TakenItem // what it popped; at noAttempt, the batch's restores
	effects map[int64]SideEffects       // what left the queues in the attempt

	// gone is what has left the queues so far: at attemptItself in the attempt, and at the index of
	// an item in the step of Settle that began with it. A step that is repeated counts once.
	gone map[int64]SideEffects
	// at is when the batch ended. All attempts to settle it go by that time, so that the same items
	// have expired whichever of them commits.
	at time.Time
}

// attemptItself is the key of unsettled.gone for what left the queues in the attempt.
const attemptItself = -1

// unsettled is what Settle has to know of the batch.
func (p *Pending) unsettled() unsettled {
	u := unsettled{
		receipt: p.receipt,
		restore: map[int64][]state.TakenItem{noAttempt: restoresOf(p.ops)},
		effects: map[int64]SideEffects{},
		gone:    map[int64]SideEffects{},
		at:      p.batcher.now(),
	}
	for _, a := range p.unknown {
		u.restore[a.attempt], u.effects[a.attempt] = a.popped, a.effects
	}
	return u
}

// Settle resolves the batches of unknown outcome. If such a batch has committed, Settle puts the
// items that it popped back to their old places, since nobody received them; its pushes and
// restores stay. If it has not, Settle makes sure that it never will, but makes its restores.
//
// Start settles before it does anything else, so call Settle only to have items back before the
// next batch, from the goroutine that calls Start. It does nothing if there is nothing to settle.
//
// Settle retries until ctx ends. Errors: ErrCorrupt, errors of the store, and the context's error.
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

		step := func(tx kv.Transaction) (bool, error) { return b.settleStep(tx, u, budget) }
		done, err := kv.TransactIdempotent(ctx, state.Shrinking{Database: b.db}, step)
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
			b.mu.effects.Add(n)
		}
		b.mu.unsettled = b.mu.unsettled[1:]
		b.mu.obsolete = append(b.mu.obsolete, u.receipt)
		b.mu.Unlock()
	}
}

// settleStep restores about budget bytes of items, since all of them may be too large for one
// transaction, and reports whether that was all. The receipt records each step, so that it happens
// once even if its own commit has an unknown outcome.
func (b *Batcher) settleStep(tx kv.Transaction, u unsettled, budget int) (done bool, err error) {
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
	next, effects, err := restoreSome(tx, items, int(restored), budget, u.at)
	if err != nil {
		return false, err
	}
	u.gone[attemptItself], u.gone[restored] = u.effects[number], effects

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
func restoreSome(
	tx kv.Transaction, items []state.TakenItem, next, budget int, now time.Time,
) (end int, effects SideEffects, err error) {
	var ops []Op
	end = next
	for size := 0; end < len(items); end++ {
		i := &items[end]
		if size += i.RestoreSize(); size > budget && end > next {
			break
		}
		ops = append(ops, Op{Kind: OpRestore, Queue: &handle{i.L}, Item: i.Item})
	}

	t := newTxOps(tx, ops, make([]Result, len(ops)), now)
	if err := t.apply(); err != nil {
		return next, effects, err
	}
	for i := range t.results {
		if err := t.results[i].Err; err != nil && !errors.Is(err, ErrExists) {
			return next, effects, err
		}
	}
	return end, t.effects, nil
}

// restoresOf returns the items that the OpRestores among the operations put back.
func restoresOf(ops []Op) (items []state.TakenItem) {
	for i := range ops {
		op := &ops[i]
		l := op.Queue.Layout()
		if op.Kind == OpRestore && op.checkRestore(l) == nil {
			item := *op.Item // a copy: the caller has the other
			items = append(items, state.TakenItem{L: l, Item: &item})
		}
	}
	return items
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
