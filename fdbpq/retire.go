package fdbpq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// NewMark returns a mark that is unique.
func NewMark() Mark { return Mark(codec.RandomBytes(16)) }

// Retired is what Retire did with a queue.
type Retired uint8

const (
	// InUse: the queue has items, settings, consumers, or message ids whose window is not over, or
	// a Popper is at work on it. It stays listed.
	InUse Retired = iota
	// Marked: the queue is empty and now has the new mark.
	Marked
	// NotListed: the queue is not in the list, or no longer.
	NotListed
)

// Retire takes empty queues off the list of queues, in two steps. An empty queue that has the mark
// ripe leaves the list, and all its keys are removed. Every other empty queue gets the mark next.
// ripe must be the next of earlier calls, and they must have returned at least RetireAfter ago; ""
// is no mark.
//
// Call it for queues that seem to be unused, and again RetireAfter later. A push in between keeps
// the queue on the list, or lists it again, and does not conflict with Retire unless it has a MsgID
// or Unique key. Items are safe in any case. But a push whose transaction stays open for almost
// RetireAfter may leave its queue unlisted until the next push.
//
// Queues in use are only read. All others are written in one transaction, so pass a few hundred
// queues at a time, all of one Keyspace. The result says what became of each.
//
// Errors: ErrCorrupt, errors of the store, and the context's error. Retire retries until ctx ends,
// and may be called again with the same marks after an error.
func Retire(
	ctx context.Context, db kv.Database, queues []Target, next, ripe Mark,
) ([]Retired, error) {
	// Most queues are in use, and finding that out needs no writer.
	done, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]Retired, error) {
		done, _, err := readEmptiness(r, queues, time.Now())
		return done, err
	})
	if err != nil {
		return nil, err
	}

	var empty []Target
	var places []int
	for i, what := range done {
		if what == Marked {
			empty, places = append(empty, queues[i]), append(places, i)
		}
	}
	if len(empty) == 0 {
		return done, nil
	}

	again, err := kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) ([]Retired, error) {
		return retireEmpty(tx, empty, next, ripe)
	})
	for i, what := range again {
		done[places[i]] = what
	}
	return done, err
}

// retireEmpty marks the queues that are empty, or takes them off the list.
func retireEmpty(tx kv.Transaction, queues []Target, next, ripe Mark) ([]Retired, error) {
	now := time.Now()
	done, entries, err := readEmptiness(tx, queues, now)
	if err != nil {
		return nil, err
	}

	for i, what := range done {
		if what != Marked {
			continue
		}

		// The first step: mark it.
		mark, err := codec.ParseListEntry(entries[i])
		if err != nil {
			return nil, err
		}
		l := queues[i].Layout()
		if mark == "" || mark != ripe {
			tx.Set(l.ListKey(), tuple.Tuple{now.UnixMicro(), []byte(next)}.Pack())
			continue
		}

		// The second: no push has removed the mark.
		l.ClearBesideSettings(tx) // it has none
		tx.Clear(l.ListKey())
		done[i] = NotListed
	}
	return done, nil
}

// readEmptiness reads all queues in one round trip. It returns whether they may leave the list, as
// Marked or InUse, and their entries there.
func readEmptiness(
	r kv.Reader, queues []Target, now time.Time,
) (found []Retired, entries [][]byte, err error) {
	begun := make([]func() (Retired, []byte, error), len(queues))
	for i, queue := range queues {
		begun[i] = beginEmptiness(r, queue.Layout(), now)
	}

	found, entries = make([]Retired, len(queues)), make([][]byte, len(queues))
	for i, finish := range begun {
		if found[i], entries[i], err = finish(); err != nil {
			return nil, nil, err
		}
	}
	return found, entries, nil
}

// beginEmptiness starts the reads of a queue, and returns a function that waits for them. Some keys
// mean nothing without an item: message ids whose window is over, and counters, histories, ("m")
// keys and unique keys, which a program that pops with the bare recipe leaves behind. Between those
// are the keys that are in use.
func beginEmptiness(
	r kv.Reader, l *codec.Layout, now time.Time,
) func() (found Retired, entry []byte, err error) {
	first := func(begin, end []byte) kv.Future[[]kv.KeyValue] {
		return r.GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{Limit: 1})
	}

	// Histories come before everything else, unique keys after. ("m") keys and counters are next to
	// each other, and message ids and their entries almost.
	histories := append(l.Key(codec.KindHistory, 1), 0xff)
	ids, entries := l.KindRange(codec.KindMsgID), l.KindRange(codec.KindMsgIDEnd)
	metas, counters := l.Key(codec.KindMeta, 0), append(l.Key(codec.KindCounter, 1), 0xff)
	uniques := l.Key(codec.KindUnique, 0)

	listed := r.Get(l.ListKey())
	inUse := [...]kv.Future[[]kv.KeyValue]{
		first(histories, ids.Begin), first(ids.End, entries.Begin),
		first(entries.End, metas), first(counters, uniques),
	}
	lastID := r.GetRange(entries, kv.RangeOptions{Limit: 1, Reverse: true})

	return func() (found Retired, entry []byte, err error) {
		used := false
		entry, err = listed.Get()
		for _, read := range inUse {
			pairs, usedErr := read.Get()
			used = used || len(pairs) > 0
			err = errors.Join(err, usedErr)
		}

		// Message ids are in use until their window is over.
		last, lastErr := lastID.Get()
		if err = errors.Join(err, lastErr); len(last) > 0 {
			until, _, keyErr := l.ParseMsgIDEnd(last[0].Key)
			used = used || keyErr == nil && until.After(now)
		}

		switch {
		case entry == nil:
			return NotListed, nil, err
		case used:
			return InUse, entry, err
		}
		return Marked, entry, err
	}
}

// QueueCounts is a queue of a Keyspace, and how many items it has in each state.
type QueueCounts struct {
	Name                   string
	Ready, Leased, Delayed int64
}

// QueuePage is a part of a list of queues.
type QueuePage struct {
	Queues []QueueCounts
	// Next is the name after which the next page begins, "" if this is the last one. Its queue need
	// not be in Queues.
	Next string
	// Due is the queues, among these and those left out, where something is due and not handled
	// yet: OpSweep does that.
	Due []QueueName
}

// ListPriorityQueues returns up to limit priority queues, sorted by name, that come after the given
// name, "" for the first. Queues without items, settings and consumers are left out. A page ends
// after 10,000 names, so it may have few queues or none, and others may follow: see QueuePage.Next.
// An item that is due by now, in the queues that QueuePage.Due names, still counts in the state it
// had before.
// The list takes few transactions for each thousand queues, and is not atomic.
//
// Errors: ErrCorrupt, errors of the store, and the context's error.
func (k *Keyspace) ListPriorityQueues(
	ctx context.Context, db kv.Database, after string, limit int, now time.Time,
) (QueuePage, error) {
	return k.listQueues(ctx, db, &k.s.Priority, after, limit, now)
}

// ListQueues is ListPriorityQueues for FIFO queues.
func (k *Keyspace) ListQueues(
	ctx context.Context, db kv.Database, after string, limit int, now time.Time,
) (QueuePage, error) {
	return k.listQueues(ctx, db, &k.s.Fifo, after, limit, now)
}

const (
	// namesPage is the most names of a list that one transaction looks at.
	namesPage = 1000
	// maxNames is after how many names a page of a list ends. Names that were used once stay in the
	// list for a while, and looking at 10,000 takes a tenth of a second,
	// or a whole one on a busy machine.
	maxNames = 10_000
)

// endOfIDs is when the windows of all message ids are over, which put no queue on a list.
var endOfIDs = time.UnixMicro(codec.LastTime)

func (k *Keyspace) listQueues(
	ctx context.Context, db kv.Database, of *codec.Branch, after string, limit int, now time.Time,
) (page QueuePage, err error) {
	for looked := 0; ; {
		// One more than wanted says whether there are others. A small page may be all unused
		// queues.
		want := min(max(limit-len(page.Queues)+1, namesPage/10), namesPage)
		names, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]string, error) {
			return state.ListNames(of.List, r, after, want).Get()
		})
		if err != nil {
			return page, err
		}

		some, err := k.countQueues(ctx, db, of, names, now)
		if err != nil {
			return page, err
		}

		page.Queues, page.Due = append(page.Queues, some.Queues...), append(page.Due, some.Due...)
		if len(page.Queues) > limit {
			page.Queues = page.Queues[:limit]
			page.Next = page.Queues[limit-1].Name
			return page, nil
		}
		if len(names) < want {
			return page, nil
		}

		after = names[len(names)-1]
		if looked += len(names); looked >= maxNames {
			page.Next = after
			return page, nil
		}
	}
}

// countQueues counts the items of queues, and leaves out unused queues.
func (k *Keyspace) countQueues(
	ctx context.Context, db kv.Database, of *codec.Branch, names []string, now time.Time,
) (page QueuePage, err error) {
	ops := make([]Op, 0, len(names))
	for _, name := range names {
		l, err := k.s.LayoutOf(of, name)
		if err != nil {
			return page, fmt.Errorf("%w: list of queues: %w", ErrCorrupt, err)
		}
		ops = append(ops, Op{Kind: OpInfo, Queue: &handle{l}, MaxPriorities: NoPriorities})
	}

	results, err := kv.ReadTransact(ctx, db, func(r kv.Reader) (results []Result, err error) {
		results, page.Due, err = ReadDue(r, ops, now)
		return results, err
	})
	if err != nil {
		return page, err
	}

	// Queues without items that count may have items of other programs, settings or consumers.
	var uncounted []Target
	for i := range results {
		if err := results[i].Err; err != nil {
			return page, fmt.Errorf("queue %s: %w", names[i], err)
		}
		if results[i].Info.empty() {
			uncounted = append(uncounted, ops[i].Queue)
		}
	}
	found, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]Retired, error) {
		found, _, err := readEmptiness(r, uncounted, endOfIDs)
		return found, err
	})
	if err != nil {
		return page, err
	}

	for i := range results {
		info := results[i].Info
		if info.empty() {
			what := found[0]
			if found = found[1:]; what != InUse {
				continue
			}
		}
		counts := QueueCounts{names[i], info.Ready, info.Leased, info.Delayed}
		page.Queues = append(page.Queues, counts)
	}
	return page, nil
}

// empty reports whether no items were counted.
func (i *Info) empty() bool { return i.Ready == 0 && i.Leased == 0 && i.Delayed == 0 }
