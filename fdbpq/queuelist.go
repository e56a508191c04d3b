package fdbpq

import (
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// QueueCounts is a queue of a Keyspace, and how many items it has in each state.
type QueueCounts struct {
	Name                   string
	Ready, Leased, Delayed int64
}

// QueuePage is a part of a list of queues.
type QueuePage struct {
	Queues []QueueCounts
	// More says that other queues come after these.
	More bool
	// Due is the queues among these, and those left out, where something is due that has not come
	// back or gone yet: OpSweep does it.
	Due []QueueName
}

// ListPriorityQueues returns up to limit priority queues, sorted by name, that come after the given
// name, "" for the first. Those without items, settings and consumers are left out. What is due by
// now counts as what it was before, in the queues that QueuePage.Due names. It takes few
// transactions for each thousand queues, and is not atomic.
//
// Errors: ErrCorrupt, those of the store, and the context's error.
func (k *Keyspace) ListPriorityQueues(ctx context.Context, db kv.Database, after string, limit int, now time.Time) (QueuePage, error) {
	return k.listQueues(ctx, db, &k.s.Priority, after, limit, now)
}

// ListQueues is ListPriorityQueues for FIFO queues.
func (k *Keyspace) ListQueues(ctx context.Context, db kv.Database, after string, limit int, now time.Time) (QueuePage, error) {
	return k.listQueues(ctx, db, &k.s.Fifo, after, limit, now)
}

// namesPage is the most names of a list that one transaction looks at.
const namesPage = 1000

func (k *Keyspace) listQueues(ctx context.Context, db kv.Database, of *codec.Branch, after string, limit int, now time.Time) (page QueuePage, err error) {
	for {
		want := min(max(limit-len(page.Queues)+1, namesPage/10), namesPage)
		names, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]string, error) {
			return state.ListNames(of.List, r, after, want).Get()
		})
		if err != nil {
			return page, err
		}

		used, due, err := k.countQueues(ctx, db, of, names, now)
		if err != nil {
			return page, err
		}

		page.Queues, page.Due = append(page.Queues, used...), append(page.Due, due...)
		if len(page.Queues) > limit {
			page.Queues, page.More = page.Queues[:limit], true
			return page, nil
		}
		if len(names) < want {
			return page, nil
		}
		after = names[len(names)-1]
	}
}

// countQueues counts the items of queues, and leaves out those that are not used.
func (k *Keyspace) countQueues(ctx context.Context, db kv.Database, of *codec.Branch, names []string, now time.Time) (used []QueueCounts, due []QueueName, err error) {
	ops := make([]Op, 0, len(names))
	for _, name := range names {
		l, err := k.s.LayoutOf(of, name)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: list of queues: %w", ErrCorrupt, err)
		}
		queue := Target(&PriorityQueue{handle{l}})
		if l.Fifo {
			queue = &Queue{handle{l}}
		}
		ops = append(ops, Op{Kind: OpInfo, Queue: queue, MaxPriorities: NoPriorities})
	}

	results, err := kv.ReadTransact(ctx, db, func(r kv.Reader) (results []Result, err error) {
		results, due, err = ReadDue(r, ops, now)
		return results, err
	})
	if err != nil {
		return nil, nil, err
	}

	// Queues without items that count may have items of other programs, settings or consumers.
	var silent []Target
	for i := range results {
		if err := results[i].Err; err != nil {
			return nil, nil, fmt.Errorf("queue %s: %w", names[i], err)
		}
		if results[i].Info.empty() {
			silent = append(silent, ops[i].Queue)
		}
	}
	states, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]emptiness, error) {
		return readEmptiness(r, silent, now)
	})
	if err != nil {
		return nil, nil, err
	}

	for i := range results {
		info := results[i].Info
		if info.empty() {
			state := states[0]
			if states = states[1:]; !state.used {
				continue
			}
		}
		used = append(used, QueueCounts{names[i], info.Ready, info.Leased, info.Delayed})
	}
	return used, due, nil
}

// empty reports whether no items were counted.
func (i *Info) empty() bool { return i.Ready == 0 && i.Leased == 0 && i.Delayed == 0 }
