package bridge

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// retirer forgets the queues that are not used any more, and takes those of them
// that are empty off the list of queues, so that a name that was used once costs
// nothing in the end. It works in rounds, fdbpq.RetireAfter apart. A queue that
// was not used for a whole round is looked at: if it is empty it is marked, if it
// still is in the next round it leaves the list, and it is forgotten in
// any case.
//
// Names that no bridge knows any more, because theirs ended or had no room for
// them, are found in the list itself, by two rounds of looking at all of it: one
// that marks and one that takes off. Otherwise a bridge that is not used does
// nothing here.
type retirer struct {
	b      *Bridge
	ripe   fdbpq.Mark // of the round before
	passes int        // how often the list is yet to be looked through
}

const (
	// retirePage is how many queues are looked at in one transaction.
	retirePage = 200
	// retirePause is how long it waits between two of them, for the requests' sake.
	retirePause = 10 * time.Millisecond
	// listPasses is how often the list is looked through.
	listPasses = 2
)

func newRetirer(b *Bridge) *retirer { return &retirer{b: b, passes: listPasses} }

func (r *retirer) run(ctx context.Context) {
	for {
		if err := r.work(ctx); err != nil && ctx.Err() == nil {
			r.b.quiet.store.warn("queues that are not used could not be retired; the next round tries again", "error", err)
		}
		if !pause(ctx, fdbpq.RetireAfter) {
			return
		}
	}
}

// pause waits, and returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// work is one round. After an error the rest is left to the next one.
func (r *retirer) work(ctx context.Context) error {
	registry := r.b.queues
	round := registry.beginRound()
	next, ripe := fdbpq.NewMark(), r.ripe
	r.ripe = next
	if registry.evicted.Swap(false) {
		r.passes = listPasses
	}
	if r.passes > 0 {
		for kind := range registry.shards {
			if err := r.passList(ctx, subjects.Kind(kind), next, ripe); err != nil {
				return err
			}
		}
		r.passes--
	}
	for kind := range registry.shards {
		for i := range registry.shards[kind] {
			if err := r.passShard(ctx, &registry.shards[kind][i], round, next, ripe); err != nil {
				return err
			}
		}
	}
	return nil
}

// passList looks at all queues in the list.
func (r *retirer) passList(ctx context.Context, kind subjects.Kind, next, ripe fdbpq.Mark) error {
	k := r.b.keyspace
	list, open := k.PriorityQueues, func(name string) (fdbpq.Target, error) { return k.PriorityQueue(name) }
	if kind == subjects.FIFO {
		list, open = k.Queues, func(name string) (fdbpq.Target, error) { return k.Queue(name) }
	}
	for after := ""; ; {
		names, err := kv.ReadTransact(ctx, r.b.db, func(reader kv.Reader) ([]string, error) {
			return list(reader, after, retirePage).Get()
		})
		if err != nil {
			return err
		}
		var targets []fdbpq.Target
		for _, name := range names {
			after = name
			if target, err := open(name); err == nil { // else no bridge can serve it
				targets = append(targets, target)
			}
		}
		if _, err := r.retire(ctx, targets, next, ripe); err != nil || len(names) < retirePage {
			return err
		}
	}
}

// passShard looks at the queues that were not used in the round before this one.
func (r *retirer) passShard(ctx context.Context, s *shard, round int64, next, ripe fdbpq.Mark) error {
	unused := s.unused(round - 1)
	for len(unused) > 0 {
		page := unused[:min(len(unused), retirePage)]
		unused = unused[len(page):]
		targets := make([]fdbpq.Target, len(page))
		for i, q := range page {
			targets[i] = q.target
		}
		done, err := r.retire(ctx, targets, next, ripe)
		if err != nil {
			return err
		}
		var over []*queue
		for i, q := range page {
			if done[i] == fdbpq.Marked && q.marked != round-1 {
				q.marked = round // to be looked at once more
			} else {
				over = append(over, q)
			}
		}
		s.forget(over, round-1)
	}
	return nil
}

// retire is fdbpq.Retire for a page of queues, and a pause.
func (r *retirer) retire(ctx context.Context, targets []fdbpq.Target, next, ripe fdbpq.Mark) ([]fdbpq.Retired, error) {
	if len(targets) == 0 {
		return nil, nil
	}
	attempt, cancel := context.WithTimeout(ctx, r.b.options.RequestTimeout)
	defer cancel()
	done, err := fdbpq.Retire(attempt, r.b.db, targets, next, ripe)
	if err == nil && !pause(ctx, retirePause) {
		err = ctx.Err()
	}
	return done, err
}
