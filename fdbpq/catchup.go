package fdbpq

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// chore is what comes before the operations on a queue, in transactions of its own: bringing back what is
// due, where that is more than one transaction with other operations brings back, and for pushes to a queue
// with limits, counting its bytes or discarding what it has too much.
type chore struct {
	l             *layout
	counts, trims bool
}

// dueIn returns the chores of queues where only what is due comes first.
func dueIn(queues ...*layout) (list []chore) {
	for _, l := range queues {
		list = append(list, chore{l: l})
	}
	return list
}

func layoutsOf(chores []chore) (queues []*layout) {
	for _, c := range chores {
		queues = append(queues, c.l)
	}
	return queues
}

// CaughtUp is what transactions have done that do chores and nothing else.
type CaughtUp struct {
	// Removed is what they removed.
	Removed Removed
	// DeadLetters are the queues that got dead letters, so that whoever waits there can be told. Some
	// may be named twice or, after faults of the store, without need.
	DeadLetters []QueueName
	// Ahead is what falls due of what they have written.
	Ahead []QueueAhead
}

// catchUp does chores until that takes longer than limit, if it is not 0. It returns the queues where there
// may be more to do then, and what it has done, also with an error.
func catchUp(ctx context.Context, t *tally, chores []chore, now time.Time, limit time.Duration) (late []*layout, c CaughtUp, err error) {
	start := time.Now()
	for len(chores) > 0 {
		var left []chore
		once, err := t.run(ctx, func(tx kv.Transaction) (c CaughtUp, err error) {
			_, left, c, err = catchUpOnce(tx, chores, now, catchUpPage, catchUpBytes)
			return c, err
		})
		c.add(&once)
		if err != nil {
			return layoutsOf(chores), c, fmt.Errorf("bringing back what is due: %w", err)
		}
		chores = left
		if limit > 0 && time.Since(start) >= limit {
			break
		}
	}
	return layoutsOf(chores), c, nil
}

// catchUp does what comes before a batch.
func (b *Batcher) catchUp(ctx context.Context, behind []chore) (late []*layout, c CaughtUp, err error) {
	t := b.doubts
	if t == nil {
		t = &tally{db: b.db, receipt: b.receipts.Pack(tuple.Tuple{-b.tallies.Add(1)})}
	}
	b.doubts = nil
	late, c, err = catchUp(ctx, t, behind, b.now(), b.catchUps)
	b.removed.add(c.Removed)
	if len(t.attempts) > 0 {
		b.doubts = t
	} else if t.used {
		b.mu.Lock()
		b.mu.obsolete = append(b.mu.obsolete, t.receipt)
		b.mu.Unlock()
	}
	return late, c, err
}

func (c *CaughtUp) add(other *CaughtUp) {
	c.Removed.Add(other.Removed)
	c.DeadLetters = append(c.DeadLetters, other.DeadLetters...)
	c.Ahead = append(c.Ahead, other.Ahead...)
}

// tally runs transactions that do chores, one after the other, and counts each item that they remove
// once, whatever the store says of their commits: those that remove any have a receipt, as
// batches do. Only if the store does not answer until ctx ends, items may be removed that are not counted.
type tally struct {
	db      kv.Database
	receipt []byte // nil if nobody counts
	used    bool   // the receipt has to be removed

	number   int64             // of attempts so far
	attempts map[int64]Removed // of which none is known to have committed: what each has removed, by number
}

// run runs a transaction until it commits. After an error, the next run counts what this one turns out to have
// done. The result is valid with an error as well.
func (t *tally) run(ctx context.Context, fn func(kv.Transaction) (CaughtUp, error)) (c CaughtUp, err error) {
	var removed Removed
	_, err = kv.TransactIdempotent(ctx, shrinking{t.db}, func(tx kv.Transaction) (struct{}, error) {
		before, err := t.before(tx)
		if err != nil {
			return struct{}{}, err
		}
		once, err := fn(tx)
		if err != nil {
			return struct{}{}, err
		}
		t.number++
		removed = before
		removed.Add(once.Removed)
		if t.attempts == nil {
			t.attempts = map[int64]Removed{}
		}
		t.attempts[t.number] = removed
		if t.receipt != nil && (removed != Removed{} || len(t.attempts) > 1) {
			t.used = true
			putReceipt(tx, t.receipt, time.Now(), t.number, 0)
		}
		once.Removed = Removed{}
		c.add(&once) // also of an attempt that may have committed
		return struct{}{}, nil
	})
	if kv.MaybeCommitted(err) { // this transaction, not that of the caller
		err = ctx.Err()
	}
	if err == nil {
		c.Removed, t.attempts = removed, nil
	}
	return c, err
}

// before returns what the earlier attempt has removed that committed, if one did.
func (t *tally) before(tx kv.Transaction) (Removed, error) {
	if len(t.attempts) == 0 || t.receipt == nil {
		return Removed{}, nil
	}
	value, err := tx.Get(t.receipt).Get()
	if value == nil || err != nil {
		return Removed{}, err
	}
	_, number, _, err := parseReceipt(value)
	return t.attempts[number], err // nothing for one of the transaction before
}

// end removes the receipt. If that fails, SweepReceipts will.
func (t *tally) end(ctx context.Context) {
	if t.used {
		_ = kv.UpdateIdempotent(ctx, shrinking{t.db}, func(tx kv.Transaction) error {
			tx.Clear(t.receipt)
			return nil
		})
	}
}

// newTally returns a tally with a receipt that no Batcher has.
func (k *Keyspace) newTally(db kv.Database) *tally {
	return &tally{db: db, receipt: k.newReceipts().Pack(tuple.Tuple{int64(0)})}
}

// newReceipts returns the keys of receipts that nobody else uses.
func (k *Keyspace) newReceipts() tuple.Subspace {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never returns an error: see crypto/rand
	return k.receipts.Sub(id)
}

// catchUpOnce does what one transaction has room for, up to about page entries of each queue and
// room bytes of items, and returns what may be left.
func catchUpOnce(tx kv.Transaction, chores []chore, now time.Time, page, room int) (dues []*due, left []chore, c CaughtUp, err error) {
	dues = make([]*due, len(chores))
	dead := burials{tx: tx, now: now}
	for i, chore := range chores {
		dues[i] = &due{ledger: &ledger{tx: tx, l: chore.l, now: now}, dead: &dead, page: page}
	}
	if err := bringBackUpTo(room, true, dues); err != nil {
		return nil, nil, c, err
	}
	if err := dead.flush(); err != nil {
		return nil, nil, c, err
	}
	for i, d := range dues {
		more, err := d.finishChore(chores[i])
		if err != nil {
			return nil, nil, c, err
		}
		if more {
			left = append(left, chores[i])
		}
		c.Removed.Add(d.ledger.removed)
		c.Ahead = d.ledger.appendAhead(c.Ahead)
	}
	c.DeadLetters = dead.reached()
	c.Removed.Dead += dead.count
	return dues, left, c, nil
}

// finishChore does what comes after bringing back what is due, and reports whether there may be more to do.
func (d *due) finishChore(c chore) (more bool, err error) {
	g, all := d.ledger, true
	if c.counts {
		if all, err = g.countPage(); err != nil {
			return false, err
		}
	}
	if c.trims && all {
		if more, err = g.trim(); err != nil {
			return false, err
		}
	}
	return more || !all || d.behind(), g.flush()
}
