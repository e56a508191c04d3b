package fdbpq

import (
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ReadDue is Read in a transaction of its own, on queues of the Keyspace, after what is due by now in them was
// brought back. It also returns what that did, with an error as well. Operations of other kinds result in ErrOp.
func (k *Keyspace) ReadDue(ctx context.Context, db kv.Database, ops []Op, now time.Time) (results []Result, done CaughtUp, err error) {
	due := false
	results, err = kv.ReadTransact(ctx, db, func(r kv.Reader) (results []Result, err error) {
		results, due, err = read(r, ops, &now, noBound)
		return results, err
	})
	if err != nil || !due {
		return results, done, err
	}
	var layouts []*layout
	seen := map[string]bool{}
	for i := range ops {
		if l := ops[i].Queue.layout(); !seen[l.prefix] {
			seen[l.prefix] = true
			layouts = append(layouts, l)
		}
	}
	t := k.newTally(db)
	defer t.end(ctx)
	for len(layouts) > 0 {
		some := layouts[:min(len(layouts), catchUpQueues)]
		layouts = layouts[len(some):]
		_, c, err := catchUp(ctx, t, dueIn(some...), now, 0)
		done.add(&c)
		if err != nil {
			return nil, done, err
		}
	}
	results, err = kv.ReadTransact(ctx, db, func(r kv.Reader) ([]Result, error) { return Read(r, ops) })
	return results, done, err
}

// catchUpQueues is how many queues ReadDue catches up with at a time.
const catchUpQueues = 100

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
	// CaughtUp is what was done before the items were counted.
	CaughtUp
}

// ListPriorityQueues returns up to limit priority queues, sorted by name, that come after the given name, "" for the
// first. Those that have neither items nor settings are left out. It first brings back what is due in the queues by now,
// so that the counts are right. It takes few transactions for each thousand queues, and is not atomic.
//
// Errors: ErrCorrupt, those of the store, and the context's error; QueuePage.CaughtUp is set as well then.
func (k *Keyspace) ListPriorityQueues(ctx context.Context, db kv.Database, after string, limit int, now time.Time) (QueuePage, error) {
	return k.listQueues(ctx, &k.priority, after, limit, k.dueReader(db, now))
}

// ListQueues is ListPriorityQueues for FIFO queues.
func (k *Keyspace) ListQueues(ctx context.Context, db kv.Database, after string, limit int, now time.Time) (QueuePage, error) {
	return k.listQueues(ctx, &k.fifo, after, limit, k.dueReader(db, now))
}

// ReadPriorityQueues is ListPriorityQueues, but only reads: what has fallen due and nobody has brought back yet
// counts as it did before.
func (k *Keyspace) ReadPriorityQueues(ctx context.Context, db kv.Database, after string, limit int, now time.Time) (QueuePage, error) {
	return k.listQueues(ctx, &k.priority, after, limit, plainReader(db, now))
}

// ReadQueues is ReadPriorityQueues for FIFO queues.
func (k *Keyspace) ReadQueues(ctx context.Context, db kv.Database, after string, limit int, now time.Time) (QueuePage, error) {
	return k.listQueues(ctx, &k.fifo, after, limit, plainReader(db, now))
}

// listReader reads what a list shows.
type listReader struct {
	db    kv.Database
	now   time.Time
	infos func(ctx context.Context, ops []Op) ([]Result, CaughtUp, error)
}

// dueReader first brings back what is due by now.
func (k *Keyspace) dueReader(db kv.Database, now time.Time) listReader {
	return listReader{db, now, func(ctx context.Context, ops []Op) ([]Result, CaughtUp, error) {
		return k.ReadDue(ctx, db, ops, now)
	}}
}

// plainReader writes nothing.
func plainReader(db kv.Database, now time.Time) listReader {
	return listReader{db, now, func(ctx context.Context, ops []Op) ([]Result, CaughtUp, error) {
		results, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]Result, error) { return Read(r, ops) })
		return results, CaughtUp{}, err
	}}
}

// namesPage is the most names of a list that one transaction looks at.
const namesPage = 1000

func (k *Keyspace) listQueues(ctx context.Context, of *branch, after string, limit int, reader listReader) (page QueuePage, err error) {
	for {
		want := min(max(limit-len(page.Queues)+1, namesPage/10), namesPage)
		names, err := kv.ReadTransact(ctx, reader.db, func(r kv.Reader) ([]string, error) {
			return of.list.names(r, after, want).Get()
		})
		if err != nil {
			return page, err
		}
		used, done, err := k.countQueues(ctx, of, names, reader)
		page.CaughtUp.add(&done)
		if err != nil {
			return page, err
		}
		page.Queues = append(page.Queues, used...)
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
func (k *Keyspace) countQueues(ctx context.Context, of *branch, names []string, reader listReader) (used []QueueCounts, done CaughtUp, err error) {
	ops := make([]Op, 0, len(names))
	for _, name := range names {
		l, err := k.layoutOf(of, name)
		if err != nil {
			return nil, done, fmt.Errorf("%w: list of queues: %w", ErrCorrupt, err)
		}
		ops = append(ops, Op{Kind: OpInfo, Queue: &PriorityQueue{l}, MaxPriorities: NoPriorities})
	}
	results, done, err := reader.infos(ctx, ops)
	if err != nil {
		return nil, done, err
	}
	var silent []Target // that have no items, or only those of other programs
	for i := range results {
		if err := results[i].Err; err != nil {
			return nil, done, fmt.Errorf("queue %s: %w", names[i], err)
		}
		if results[i].Info.empty() {
			silent = append(silent, ops[i].Queue)
		}
	}
	states, err := kv.ReadTransact(ctx, reader.db, func(r kv.Reader) ([]emptiness, error) { return readEmptiness(r, silent, reader.now) })
	if err != nil {
		return nil, done, err
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
	return used, done, nil
}

// empty reports whether no items were counted.
func (i *Info) empty() bool { return i.Ready == 0 && i.Leased == 0 && i.Delayed == 0 }
