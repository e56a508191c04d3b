package fdbpq

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// CaughtUp is what transactions have done that bring back what is due and do nothing else.
type CaughtUp struct {
	// Expired is how many items they removed because those had expired.
	Expired int64
	// DeadLetters are the queues that got dead letters, so that whoever waits there can be told. Some
	// may be named twice or, after faults of the store, without need.
	DeadLetters []QueueName
	// Ahead is what falls due of what they have written.
	Ahead []QueueAhead
}

// catchUp brings back what is due in queues where more is due than one transaction with
// other operations brings back, until that takes longer than limit, if it is not 0. It returns
// the queues where more may be due then, and what was done, also with an error.
func catchUp(ctx context.Context, t *tally, behind []*layout, now time.Time, limit time.Duration) (late []*layout, c CaughtUp, err error) {
	start := time.Now()
	for len(behind) > 0 {
		var left []*layout
		once, err := t.run(ctx, func(tx kv.Transaction) (CaughtUp, error) {
			dues, c, err := catchUpOnce(tx, behind, now, catchUpPage, catchUpBytes)
			left = behindOf(dues)
			return c, err
		})
		c.add(&once)
		if err != nil {
			return behind, c, fmt.Errorf("bringing back what is due: %w", err)
		}
		behind = left
		if limit > 0 && time.Since(start) >= limit {
			break
		}
	}
	return behind, c, nil
}

func (c *CaughtUp) add(other *CaughtUp) {
	c.Expired += other.Expired
	c.DeadLetters = append(c.DeadLetters, other.DeadLetters...)
	c.Ahead = append(c.Ahead, other.Ahead...)
}

// tally runs transactions that bring back what is due, one after the other, and counts each item that
// they expire once, whatever the store says of their commits: those that expire any have a receipt, as
// batches do. Only if the store does not answer until ctx ends, items may be removed that are not counted.
type tally struct {
	db      kv.Database
	receipt []byte // nil if nobody counts
	used    bool   // the receipt has to be removed

	number   int64           // of attempts so far
	attempts map[int64]int64 // of which none is known to have committed: what each has expired, by number
}

// run runs a transaction until it commits. After an error, the next run counts what this one turns out to have
// done. The result is valid with an error as well.
func (t *tally) run(ctx context.Context, fn func(kv.Transaction) (CaughtUp, error)) (c CaughtUp, err error) {
	expired := int64(0)
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
		expired = before + once.Expired
		if t.attempts == nil {
			t.attempts = map[int64]int64{}
		}
		t.attempts[t.number] = expired
		if t.receipt != nil && (expired > 0 || len(t.attempts) > 1) {
			t.used = true
			putReceipt(tx, t.receipt, time.Now(), t.number, 0)
		}
		once.Expired = 0
		c.add(&once) // also of an attempt that may have committed
		return struct{}{}, nil
	})
	if kv.MaybeCommitted(err) { // this transaction, not that of the caller
		err = ctx.Err()
	}
	if err == nil {
		c.Expired, t.attempts = expired, nil
	}
	return c, err
}

// before returns how many items the earlier attempt has expired that committed, if one did.
func (t *tally) before(tx kv.Transaction) (int64, error) {
	if len(t.attempts) == 0 || t.receipt == nil {
		return 0, nil
	}
	value, err := tx.Get(t.receipt).Get()
	if value == nil || err != nil {
		return 0, err
	}
	_, number, _, err := parseReceipt(value)
	return t.attempts[number], err // 0 for one of the transaction before
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
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never returns an error: see crypto/rand
	return &tally{db: db, receipt: k.receipts.Pack(tuple.Tuple{id, int64(0)})}
}

// catchUpOnce brings back what one transaction has room for, up to about page entries of each queue and
// room bytes of items.
func catchUpOnce(tx kv.Transaction, queues []*layout, now time.Time, page, room int) (dues []*due, c CaughtUp, err error) {
	dues = make([]*due, len(queues))
	dead := burials{tx: tx, now: now}
	for i, l := range queues {
		dues[i] = &due{ledger: &ledger{tx: tx, l: l, now: now}, dead: &dead, page: page}
	}
	if err := bringBackUpTo(room, true, dues); err != nil {
		return nil, c, err
	}
	dead.flush()
	for _, d := range dues {
		d.ledger.flush()
		c.Expired += d.ledger.expired
		c.Ahead = d.ledger.appendAhead(c.Ahead)
	}
	c.DeadLetters = dead.reached()
	return dues, c, nil
}

// behindOf returns the queues where more may be due.
func behindOf(dues []*due) (behind []*layout) {
	for _, d := range dues {
		if d.behind() {
			behind = append(behind, d.ledger.l)
		}
	}
	return behind
}
