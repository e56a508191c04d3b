package fdbpq

import (
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
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

// catchUp does chores until that takes longer than limit, if it is not 0. It returns the queues where there
// may be more to do then, and what it has done, also with an error.
func catchUp(ctx context.Context, db kv.Database, chores []chore, now time.Time, limit time.Duration) (late []*layout, c caughtUp, err error) {
	start := time.Now()
	for len(chores) > 0 {
		var removed Removed
		chores, err = kv.TransactIdempotent(ctx, shrinking{db}, func(tx kv.Transaction) ([]chore, error) {
			left, once, err := catchUpOnce(tx, chores, now)
			c.reached = append(c.reached, once.reached...) // also of an attempt that may have committed
			removed = once.removed
			return left, err
		})
		if err == nil {
			c.removed.add(removed)
		}
		if kv.MaybeCommitted(err) { // this transaction, not the batch
			err = ctx.Err()
		}
		if err != nil {
			return layoutsOf(chores), c, fmt.Errorf("bringing back what is due: %w", err)
		}
		if limit > 0 && time.Since(start) >= limit {
			break
		}
	}
	return layoutsOf(chores), c, nil
}

// caughtUp is what transactions before that of a batch have done.
type caughtUp struct {
	reached []QueueName // that got dead letters
	removed Removed
}

// catchUpOnce does what one transaction has room for, and returns what may be left.
func catchUpOnce(tx kv.Transaction, chores []chore, now time.Time) (left []chore, c caughtUp, err error) {
	dues := make([]*due, len(chores))
	dead := burials{tx: tx, now: now}
	for i, chore := range chores {
		dues[i] = &due{ledger: &ledger{tx: tx, l: chore.l, now: now}, dead: &dead, page: catchUpPage}
	}
	if err := bringBackUpTo(catchUpBytes, true, dues); err != nil {
		return nil, c, err
	}
	if err := dead.flush(); err != nil {
		return nil, c, err
	}
	for i, d := range dues {
		g, all, more := d.ledger, true, false
		if chores[i].counts {
			if all, err = g.countPage(); err != nil {
				return nil, c, err
			}
		}
		if chores[i].trims && all {
			if more, err = g.trim(); err != nil {
				return nil, c, err
			}
		}
		if err := g.flush(); err != nil {
			return nil, c, err
		}
		c.removed.add(g.removed)
		if d.behind() || !all || more {
			left = append(left, chores[i])
		}
	}
	c.reached, c.removed.Dead = dead.reached(), dead.count
	return left, c, nil
}
