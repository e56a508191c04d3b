package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// list is the list of the queues of one kind in a Keyspace:
//
//	("pq-queues", name) = (microseconds)        listed, since about then
//	                    = (microseconds, mark)  listed, but Retire found the queue empty
//
// Pushes list queues, and Retire takes empty ones off the list.
//
// # Why no queue with items is missing
//
// A push must not conflict with other pushes, and should not read the list each time.
// So it relies on an earlier batch of the same process that has seen the entry, for
// listedLife from the start of that batch. Otherwise it reads the entry, without conflict,
// and writes it if it is missing or has a mark.
//
// Taking a queue off the list takes two transactions. The first finds the queue empty and
// leaves a mark. The second, RetireAfter later, finds the queue still empty with the same
// mark, and removes the entry. Both read the entry and the range of the items, so that they
// conflict with every change of either.
//
// Now take a push. If it commits before the second transaction, that transaction sees the
// item, or conflicts. So let it commit after the second transaction:
//
//   - If it read the entry, it began after the mark was made, because otherwise it would
//     have ended by now. So it saw the mark, or no entry, and wrote the entry. Either the
//     second transaction conflicts with that, or the write restores what it removed.
//   - If it relied on an earlier batch, that batch began less than listedLife before, and
//     so after the mark was made, too. The batch saw the entry without a mark, or wrote it:
//     the mark was gone, and the second transaction did not find it.
//
// This holds as long as a transaction ends within RetireAfter - listedLife of its start.
// All durations are measured by the clock of one process; no two clocks are compared. It
// does not hold for old versions of this package, which relied on an entry indefinitely: a
// queue that one of them pushes to may be missing until another process pushes to it.
type list struct {
	prefix string // of the keys in the list
	root   string // of the keys of the queues in it
}

const (
	// listedLife is how long pushes may rely on a batch that saw their queue in the
	// list.
	listedLife = time.Minute

	// RetireAfter is the least time between the call of Retire that marks a queue and
	// the call that takes it off the list.
	RetireAfter = 10 * time.Minute
)

func newList(base tuple.Subspace, root string) *list {
	return &list{
		prefix: string(base.Pack(tuple.Tuple{root + listSuffix})),
		root:   string(base.Pack(tuple.Tuple{root})),
	}
}

// listKey is the key of the queue in its list.
func (l *layout) listKey() []byte {
	name := l.prefix[len(l.list.root):] // packed
	return append(append(make([]byte, 0, len(l.list.prefix)+len(name)), l.list.prefix...), name...)
}

// recentlyListed reports whether a push may rely on the queue being in the list. It
// compares both the monotonic and the wall clock, because either may have been stopped or
// set meanwhile.
func (l *layout) recentlyListed(now time.Time) bool {
	seen := l.listedSince.Load()
	if seen == nil {
		return false
	}
	age, byWall := now.Sub(*seen), now.Round(0).Sub(seen.Round(0))
	return 0 <= age && age < listedLife && 0 <= byWall && byWall < listedLife
}

// addToList lists the queue, without a mark.
func (l *layout) addToList(tx kv.Transaction, now time.Time) {
	tx.Set(l.listKey(), tuple.Tuple{now.UnixMicro()}.Pack())
}

// parseListEntry returns the mark of an entry, "" without one.
func parseListEntry(value []byte) (Mark, error) {
	_, rest, err := tuple.DecodeInt(value)
	var mark []byte
	if err == nil && len(rest) > 0 {
		mark, rest, err = tuple.DecodeBytes(rest)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes more", len(rest))
	}
	if err != nil {
		return "", fmt.Errorf("%w: list of queues: value %x: %w", ErrCorrupt, value, err)
	}
	return Mark(mark), nil
}

// pairs starts to read up to limit entries after the given name.
func (l *list) pairs(r kv.Reader, after string, limit int) kv.Future[[]kv.KeyValue] {
	span := within([]byte(l.prefix))
	if after != "" {
		span.Begin = kv.SingleKey(tuple.AppendString([]byte(l.prefix), after)).End
	}
	return r.GetRange(span, kv.RangeOptions{Limit: limit})
}

// name returns the name in the key of an entry.
func (l *list) name(key []byte) (string, error) {
	name, rest, err := tuple.DecodeString(key[len(l.prefix):])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes more", len(rest))
	}
	if err != nil {
		return "", fmt.Errorf("%w: list of queues: key %x: %w", ErrCorrupt, key, err)
	}
	return name, nil
}

func (l *list) names(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return names{l, l.pairs(r, after, limit)}
}

// names is a list of names being read.
type names struct {
	l     *list
	pairs kv.Future[[]kv.KeyValue]
}

// Get implements kv.Future.
func (n names) Get() ([]string, error) {
	pairs, err := n.pairs.Get()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(pairs))
	for i, pair := range pairs {
		if names[i], err = n.l.name(pair.Key); err != nil {
			return nil, err
		}
	}
	return names, nil
}
