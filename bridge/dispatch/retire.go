package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// retirer evicts queues that are no longer used from memory, and removes the empty ones from the
// list of queues, so that a name used once ends up costing nothing.
//
// Rounds are fdbpq.RetireAfter apart. A round checks each queue that was not used during the one
// before. If the queue is empty, the round marks it, and the next round removes it from the list if
// it still is. Then the queue is evicted. One that is not empty is evicted at once.
//
// Names that no bridge has in memory, because their bridge ended or had no room for them, are found
// in the list itself, in two rounds: the first marks, the second removes.
type retirer struct {
	d      *shared
	ripe   fdbpq.Mark // of the previous round
	passes int        // how many more rounds go through the whole list
}

const (
	// retirePause, between two transactions, leaves room for requests.
	retirePause = 10 * time.Millisecond
	// listPasses is how many rounds go through the list: one marks, one removes.
	listPasses = 2
)

// sweepAge is longer than any batch can take, see fdbpq.SweepReceipts.
const sweepAge = 24 * time.Hour

// sweepReceipts removes what dead processes left in the store.
func (r *retirer) sweepReceipts(ctx context.Context) {
	err := fdbpq.SweepReceipts(ctx, r.d.options.DB, r.d.options.Keyspace, sweepAge)
	if err != nil && ctx.Err() == nil {
		const text = "old receipts could not be removed; the next start tries again"
		r.d.options.Warn(text, "error", err)
	}
}

func (r *retirer) run(ctx context.Context) {
	for {
		if err := r.runRound(ctx); err != nil && ctx.Err() == nil {
			const text = "unused queues could not be retired; the next round tries again"
			r.d.options.Warn(text, "error", err)
		}
		if !signal.Pause(ctx, fdbpq.RetireAfter) {
			return
		}
	}
}

// runRound runs one round. After an error it leaves the rest to the next one. Calls must not be
// concurrent.
func (r *retirer) runRound(ctx context.Context) error {
	queues := r.d.queues
	round := queues.round.Add(1)
	next, ripe := fdbpq.NewMark(), r.ripe
	r.ripe = next

	if queues.evicted.Swap(false) {
		r.passes = listPasses
	}
	if r.passes > 0 {
		for _, fifo := range []bool{false, true} {
			if err := r.passList(ctx, fifo, next, ripe); err != nil {
				return err
			}
		}
		r.passes--
	}

	for i := range queues.shards {
		if err := r.passShard(ctx, &queues.shards[i], round, next, ripe); err != nil {
			return err
		}
	}

	return nil
}

// passList retires queues of the whole list.
func (r *retirer) passList(ctx context.Context, fifo bool, next, ripe fdbpq.Mark) error {
	for after := ""; ; {
		queues, err := r.d.list(ctx, fifo, after)
		if err != nil {
			return err
		}

		var targets []fdbpq.Target
		for _, name := range queues {
			after = name.Name
			if target, err := r.d.target(name); err == nil { // no bridge serves a bad name
				targets = append(targets, target)
			}
		}

		if _, err := r.retire(ctx, targets, next, ripe); err != nil || len(queues) < listPage {
			return err
		}
	}
}

// passShard retires queues that were not used in the previous round.
func (r *retirer) passShard(
	ctx context.Context, s *shard, round int64, next, ripe fdbpq.Mark,
) error {
	for page := range slices.Chunk(s.unused(round-1), listPage) {
		targets := make([]fdbpq.Target, len(page))
		for i, q := range page {
			targets[i] = q.Target
		}
		done, err := r.retire(ctx, targets, next, ripe)
		if err != nil {
			return err
		}

		var evicted []*Queue
		for i, q := range page {
			if done[i] == fdbpq.Marked && q.marked != round-1 {
				q.marked = round // the next round checks it once more
			} else {
				evicted = append(evicted, q)
			}
		}
		s.evictUnused(evicted, round-1)
	}

	return nil
}

// retire calls fdbpq.Retire for a page of queues, then pauses. A page that takes too long, because
// the machine is busy, is tried again in halves: a round that ends early leaves all names behind it
// in the list for another RetireAfter.
func (r *retirer) retire(
	ctx context.Context, targets []fdbpq.Target, next, ripe fdbpq.Mark,
) ([]fdbpq.Retired, error) {
	if len(targets) == 0 {
		return nil, nil
	}

	attempt, cancel := context.WithTimeout(ctx, r.d.options.RequestTimeout)
	defer cancel()
	done, err := fdbpq.Retire(attempt, r.d.options.DB, targets, next, ripe)
	slow := err != nil && attempt.Err() != nil && ctx.Err() == nil
	if half := len(targets) / 2; slow && half > 0 {
		if done, err = r.retire(ctx, targets[:half], next, ripe); err != nil {
			return nil, err
		}
		rest, err := r.retire(ctx, targets[half:], next, ripe)
		return append(done, rest...), err
	}
	if err == nil && !signal.Pause(ctx, retirePause) {
		err = ctx.Err()
	}
	return done, err
}
